"""Who gets in, and what browsers are told."""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode

import httpx
import pytest
from starlette.exceptions import HTTPException

from console.conftest import Start
from console.forms import csrf
from ottla import Broker
from ottla.console.sessions import Sessions
from ottla.console.settings import Settings
from ottla.console.state import Console
from ottla.errors import ConfigError

TOKEN = "a token of 24 characters"
BEARER = {"authorization": f"Bearer {TOKEN}"}


def test_a_page_has_the_headers_that_protect_it(console: httpx.Client) -> None:
    page = console.get("/")
    assert page.status_code == 200
    policy = page.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert page.headers["x-frame-options"] == "DENY"
    assert page.headers["cache-control"] == "no-store"
    assert console.get("/static/console.css").headers["x-content-type-options"] == "nosniff"


def test_names_of_other_sites_do_not_lead_to_a_console_without_a_login(console: httpx.Client) -> None:
    assert console.get("/", headers={"host": "evil.example:8080"}).status_code == 421
    assert console.get("/", headers={"host": "localhost:1"}).status_code == 200
    assert console.get("/", headers={"host": "[broken"}).status_code == 421


def test_a_form_needs_its_token_and_must_come_from_here(console: httpx.Client) -> None:
    token = csrf(console.get("/"))
    assert console.post("/theme", data={"theme": "dark", "csrf": token}).status_code == 303
    assert console.post("/theme", data={"theme": "dark"}).status_code == 403
    assert console.post("/theme", data={"theme": "dark", "csrf": "0" * 64}).status_code == 403
    foreign = {"origin": "http://evil.example"}
    assert console.post("/theme", data={"theme": "dark", "csrf": token}, headers=foreign).status_code == 403
    assert console.post("/theme", data={"csrf": token}, headers={"origin": "null"}).status_code == 403
    crossing = {"sec-fetch-site": "cross-site"}
    assert console.post("/theme", data={"theme": "dark", "csrf": token}, headers=crossing).status_code == 403
    assert console.post("/theme", json={"theme": "dark"}).status_code == 415


def test_the_theme_stays(console: httpx.Client) -> None:
    console.post("/theme", data={"theme": "dark", "next": "/", "csrf": csrf(console.get("/"))})
    assert 'data-theme="dark"' in console.get("/").text
    console.cookies.clear()


def test_a_token_opens_the_console(start: Start) -> None:
    console = start(token=TOKEN)
    refused = console.get("/topics?q=a")
    assert (refused.status_code, refused.headers["location"]) == (303, "/login?next=%2Ftopics%3Fq%3Da")
    assert console.get("/", headers={"accept": "*/*"}).status_code == 401
    assert console.get("/live").status_code in (303, 401)
    assert console.get("/", headers=BEARER).status_code == 200
    page = console.get("/login?next=/")
    wrong = console.post("/login", data={"token": "wrong", "csrf": csrf(page)})
    assert wrong.status_code == 401
    assert "The token is wrong." in wrong.text
    done = console.post("/login", data={"token": TOKEN, "csrf": csrf(page), "next": "//evil.example"})
    assert (done.status_code, done.headers["location"]) == (303, "/")
    cookie = done.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert TOKEN not in cookie
    page = console.get("/")
    assert page.status_code == 200
    assert console.post("/logout", data={"csrf": csrf(page)}).status_code == 303
    assert console.get("/").status_code == 303


def test_failed_logins_are_slowed_down(start: Start) -> None:
    console = start(token=TOKEN)
    for _ in range(5):
        assert console.get("/", headers={"authorization": "Bearer wrong"}).status_code == 401
    late = console.get("/", headers=BEARER)
    assert late.status_code == 429
    assert int(late.headers["retry-after"]) > 30


def test_other_sites_can_link_to_pages_but_not_load_them(console: httpx.Client) -> None:
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert console.get("/lab", headers=link).status_code == 200
    picture = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}
    assert console.get("/lab?scenario=rolling-deploy", headers=picture).status_code == 403
    assert console.get("/", headers={**link, "sec-fetch-dest": "iframe"}).status_code == 403
    # Another port of this machine is the same site.
    assert console.get("/", headers={**picture, "sec-fetch-site": "same-site"}).status_code == 403


def test_somebody_unknown_learns_little_and_sends_little(start: Start) -> None:
    console = start(token=TOKEN)
    page = console.get("/login")
    assert "127.0.0.1:" not in page.text
    large = console.post("/login", data={"token": "x" * 20_000, "csrf": csrf(page)})
    assert large.status_code == 413
    # What the host is called does not matter for which page it is.
    for host in ("127.0.0.1/login?", "127.0.0.1/static/?", "127.0.0.1/login#"):
        assert console.get("/topics", headers={"host": host}).status_code in (303, 400, 401)


def test_a_stream_ends_with_its_session(start: Start) -> None:
    console = start(token=TOKEN)
    console.post("/login", data={"token": TOKEN, "csrf": csrf(console.get("/login"))})
    with console.stream("GET", "/live?since=0", timeout=10) as stream:
        lines = stream.iter_lines()
        assert next(lines) == "event: hello"
        token = csrf(console.get("/"))
        assert console.post("/logout", data={"csrf": token}).status_code == 303
        assert list(lines)[-1] == ""  # It ended.


def test_attempts_at_the_same_time_are_counted_too() -> None:
    from ottla.console.server import ConsoleThread

    with Broker(users={"alice": "her password"}) as broker:
        thread = ConsoleThread(Settings(config=broker.client_config("alice"), users=True))
        with httpx.Client(base_url=thread.url, headers={"accept": "text/html"}) as console:
            token = csrf(console.get("/login"))

            def guess(number: int) -> int:
                form = {"user": "alice", "password": f"guess {number}", "csrf": token}
                return console.post("/login", data=form).status_code

            with ThreadPoolExecutor(12) as pool:
                answers = Counter(pool.map(guess, range(12)))
            assert answers == {401: 5, 429: 7}
        thread.stop()


def test_the_brokers_users_log_in() -> None:
    from ottla.console.server import ConsoleThread

    acls = ["alice describe topic orders", "alice read,write topic orders"]
    with Broker(users={"alice": "her password"}, acls=acls) as broker:
        config = {name: value for name, value in broker.client_config("alice").items() if "username" not in name}
        thread = ConsoleThread(Settings(config={**config, "sasl.password": "unused"}, users=True))
        with httpx.Client(base_url=thread.url, headers={"accept": "text/html"}) as console:
            form = {"user": "alice", "csrf": csrf(console.get("/login"))}
            wrong = console.post("/login", data={**form, "password": "guess"})
            assert (wrong.status_code, "refuse this name and password" in wrong.text) == (401, True)
            assert console.post("/login", data={**form, "password": "her password"}).status_code == 303
            page = console.get("/")
            assert page.status_code == 200
            assert "Log out alice" in page.text
            refused = console.get("/groups/of-others")
            assert (refused.status_code, "bug" in refused.text) == (403, False)
            odd = urlencode({"csrf": csrf(page), "user": b"a\xff", "password": "x"})
            kind = {"content-type": "application/x-www-form-urlencoded"}
            strange = console.post("/login", content=odd, headers=kind)
            assert (strange.status_code, "control characters" in strange.text) == (401, True)
        thread.stop()


def test_read_only_refuses_every_action(start: Start) -> None:
    console = start(read_only=True)
    page = console.get("/")
    assert "read-only" in page.text
    refused = console.post("/topics/orders/delete", data={"csrf": csrf(page)})
    assert refused.status_code == 403
    assert "--read-only" in refused.text
    assert console.post("/theme", data={"theme": "dark", "csrf": csrf(page)}).status_code == 303


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::", "192.0.2.1", "kafka.example"])
def test_other_machines_need_a_login(host: str) -> None:
    with pytest.raises(ConfigError, match="--token-file"):
        Settings(config={}, host=host)
    assert Settings(config={}, host=host, token=TOKEN).asks_who
    assert Settings(config={"security.protocol": "SASL_SSL"}, host=host, users=True).asks_who


def test_users_need_brokers_that_check_passwords() -> None:
    with pytest.raises(ConfigError, match=r"security\.protocol=SASL_SSL"):
        Settings(config={"security.protocol": "SSL"}, users=True)


def test_an_unreachable_broker_is_told_on_the_page(start: Start) -> None:
    console = start(config={"bootstrap.servers": "127.0.0.1:1", "default.api.timeout.ms": 300})
    page = console.get("/")
    for _ in range(50):
        if "cannot be read" in page.text:
            break
        page = console.get("/")
    assert page.status_code == 200
    assert "127.0.0.1:1" in page.text
    assert "The cluster cannot be read." in page.text


def test_the_connections_of_a_user_end_with_the_last_session() -> None:
    async def run(config: dict[str, object]) -> None:
        console = Console(Settings(config=config, users=True), lambda: 0)
        sessions = Sessions()
        first, second = sessions.begin("alice", now=0), sessions.begin("alice", now=0)
        await console.log_in("alice", "her password")
        access = console.access("alice")
        sessions.end(first.id)
        await console.keep_only(sessions.users(now=1))
        assert not access.collector.closed
        sessions.end(second.id)
        await console.keep_only(sessions.users(now=1))
        assert access.collector.closed
        assert not console.knows("alice")
        await console.close()

    with Broker(users={"alice": "her password"}) as broker:
        asyncio.run(run(broker.client_config("alice")))


def test_a_browser_that_comes_back_while_the_console_stops_opens_nothing(broker: Broker) -> None:
    async def run() -> None:
        console = Console(Settings(config=broker.client_config()), lambda: 0)
        assert console.access().now() == 0
        await console.close()
        assert not console.knows(None)
        with pytest.raises(HTTPException, match="being stopped"):
            console.access()

    asyncio.run(run())


def test_a_form_may_have_bytes_that_are_no_text(console: httpx.Client) -> None:
    form = urlencode({"csrf": csrf(console.get("/")), "name": b"a\xff"})
    wrong = console.post("/create-topic", content=form, headers={"content-type": "application/x-www-form-urlencoded"})
    assert wrong.status_code == 400
