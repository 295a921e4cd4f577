"""Who gets in, what a read-only console shows, and how many pages can be live."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from browser.conftest import THEMES, OpenPage
from ottla import Admin, Broker
from ottla.console.server import ConsoleThread
from ottla.console.sessions import Streams
from ottla.console.settings import Settings

TOKEN = "a token of 24 characters"
Start = Callable[..., ConsoleThread]


@pytest.fixture
def start(broker: Broker) -> Iterator[Start]:
    threads = []

    def starts(**settings: Any) -> ConsoleThread:
        threads.append(ConsoleThread(Settings(config=broker.client_config(), **settings)))
        return threads[-1]

    yield starts
    for thread in threads:
        thread.stop()


@pytest.mark.parametrize("theme", THEMES)
def test_log_in_and_out(start: Start, open_page: OpenPage, theme: str) -> None:
    page = open_page("/topics?q=a", url=start(token=TOKEN).url, theme=theme, refused=True)
    assert page.evaluate("document.activeElement.id") == "token"
    page.keyboard.type("a guess")
    page.keyboard.press("Enter")
    page.get_by_role("alert").get_by_text("The token is wrong.").wait_for()
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/topics?q=a")
    page.get_by_text("live", exact=True).wait_for()
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url("**/login")
    page.go_back()
    page.wait_for_url("**/login**")


@pytest.mark.parametrize("theme", THEMES)
def test_a_read_only_console_shows_what_would_happen(
    start: Start, open_page: OpenPage, broker: Broker, theme: str
) -> None:
    topic = f"kept-{theme}"
    with Admin(broker.client_config()) as admin:
        admin.create_topics([topic])
    page = open_page(f"/topics/{topic}", url=start(read_only=True).url, theme=theme)
    page.get_by_role("link", name="Delete", exact=True).click()
    assert page.get_by_role("button", name="Delete").is_disabled()
    assert page.get_by_text("This console is read-only.").is_visible()
    assert f"ottla topics delete {topic}" in page.locator(".command code").inner_text()


def test_one_live_page_too_many_says_why_and_goes_on(start: Start, open_page: OpenPage) -> None:
    thread = start()
    thread.console.streams = Streams(each=1, most=5)
    first = open_page("/", url=thread.url)
    first.locator(".live-state", has_text="· live").wait_for()
    second = open_page("/topics", url=thread.url, refused=True, busy=True)
    second.get_by_text("not live: you have 1 live page open already: close it").wait_for()
    assert second.get_by_role("heading", name="Topics").is_visible()
    first.goto("about:blank")
    # The page tries again by itself; so does somebody who loads it again.
    second.reload()
    second.locator(".live-state", has_text="· live").wait_for()
