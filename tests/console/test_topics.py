"""The overview and the topic pages over HTTP, beside a real broker."""

from __future__ import annotations

import html
import json
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from console.conftest import Start
from console.forms import confirm, csrf
from ottla import Admin, Broker, Consumer, NewTopic, Producer, TopicPartition


def eventually(load: Callable[[], httpx.Response], text: str) -> str:
    """Load a page until it shows something that is read in the background."""
    deadline = time.monotonic() + 20
    while text not in (page := load()).text:
        assert time.monotonic() < deadline, page.text
        time.sleep(0.05)
    return page.text


def test_the_overview_shows_a_group_that_is_behind(console: httpx.Client, broker: Broker) -> None:
    with Producer(broker.client_config()) as producer:
        for number in range(30):
            producer.send("orders", value=b"%d" % number, partition=0)
    with Consumer(broker.client_config(), group_id="billing <b>", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["orders"])
        deadline = time.monotonic() + 20
        while not consumer.poll(timeout_ms=500):
            assert time.monotonic() < deadline
        consumer.commit()
    with Producer(broker.client_config()) as producer:
        for number in range(12):
            producer.send("orders", value=b"%d" % number, partition=0)
    text = eventually(lambda: console.get("/"), "billing &lt;b&gt;")
    assert "<b>" not in text
    assert 'href="/groups/billing%20%3Cb%3E"' in text
    assert ">12</td>" in text
    assert "controller" in text
    # Its consumer is closed: nobody reads, so the page must not say so.
    assert "○ no members" in eventually(lambda: console.get("/"), "○ no members")
    assert "● reads" not in console.get("/").text


def test_pages_do_not_wait_for_a_broker_that_does_not_list_its_groups(start: Start, broker: Broker) -> None:
    console = start()
    with Admin(broker.client_config()) as admin, Producer(broker.client_config()) as producer:
        admin.create_topics(["waiting"])
        producer.send("waiting", value=b"unread")
        producer.flush()
        admin.alter_group_offsets("patient", {TopicPartition("waiting", 0): 0})
    eventually(lambda: console.get("/"), "patient")
    with broker.faults.delay("ListGroups", 30):
        for path in ("/", "/groups"):
            text = console.get(path, timeout=20).text
            assert "patient" in text
            assert "no members" in text or "Empty" in text


def test_a_topic_is_created_changed_and_deleted(console: httpx.Client, broker: Broker) -> None:
    page = console.get("/create-topic", params={"name": "invoices", "partitions": "2", "configs": "retention.ms=1000"})
    assert "ottla topics create invoices --partitions 2 --config retention.ms=1000 --bootstrap-server" in page.text
    done = confirm(console, "/create-topic", name="invoices", partitions="2", configs="retention.ms=1000")
    assert (done.status_code, done.headers["location"]) == (303, "/topics/invoices")
    page = console.get("/topics/invoices")
    assert "Created topic invoices." in page.text
    assert "● this topic" in page.text
    assert "Created topic" not in console.get("/topics/invoices").text

    changing = console.get("/topics/invoices/config", params={"name": "retention.ms", "value": "5000"})
    assert "It is 1000 now." in changing.text
    assert confirm(console, "/topics/invoices/config", name="retention.ms", value="5000").status_code == 303
    assert confirm(console, "/topics/invoices/config", name="cleanup.policy", value="compact").status_code == 303
    assert confirm(console, "/topics/invoices/config", name="cleanup.policy", reset="yes").status_code == 303
    with Admin(broker.client_config()) as admin:
        (configs,) = admin.describe_configs(["invoices"]).values()
        assert (configs["retention.ms"].value, configs["cleanup.policy"].value) == ("5000", "delete")

    assert confirm(console, "/topics/invoices/partitions", total="4").status_code == 303
    assert "4 partitions now" in console.get("/topics/invoices").text
    assert confirm(console, "/topics/invoices/delete").headers["location"] == "/topics"
    assert "Deleted topic invoices." in console.get("/topics").text
    gone = console.get("/topics/invoices")
    assert (gone.status_code, "topic invoices does not exist" in gone.text) == (404, True)


def test_mistakes_are_told_before_anything_happens(console: httpx.Client, broker: Broker) -> None:
    with Admin(broker.client_config()) as admin:
        admin.create_topics([NewTopic("exists", 3)])

    def told(path: str, **values: str) -> str:
        page = console.get(path, params=values)
        assert page.status_code == 400, page.text
        assert 'role="alert"' in page.text
        return html.unescape(page.text)

    assert "may only contain ASCII letters" in told("/create-topic", name="my orders")
    assert "already exists" in told("/create-topic", name="exists")
    assert "must be a whole number from 1 on, not 'many'" in told("/create-topic", name="a", partitions="many")
    assert "write NAME=VALUE" in told("/create-topic", name="a", configs="retention")
    assert "retention.ms" in told("/create-topic", name="a", configs="retention.ms=soon")
    assert "retention.ms" in told("/topics/exists/config", name="retention.ms", value="soon")
    assert "cannot be removed" in told("/topics/exists/partitions", total="2")
    assert console.get("/topics/none/delete").status_code == 404


def test_a_list_of_topics_is_searched_sorted_and_paged(console: httpx.Client, broker: Broker) -> None:
    with Admin(broker.client_config()) as admin:
        admin.create_topics([NewTopic(f"many-{number:03}", 1) for number in range(60)])
        admin.alter_group_offsets("needs-the-internal-topic", {TopicPartition("many-000", 0): 0})
    text = eventually(lambda: console.get("/topics", params={"q": "MANY-"}), "60 topics")
    assert "page 1 of 2" in text
    assert "many-059" not in text
    assert "many-059" in console.get("/topics", params={"q": "many-", "page": "2"}).text
    assert "page 2 of 2" in console.get("/topics", params={"q": "many-", "page": "999"}).text
    eventually(lambda: console.get("/topics", params={"q": "many-", "sort": "size"}), "0 B")
    empty = console.get("/topics", params={"q": '"><script>'})
    assert "<script>" not in empty.text.replace('<script src="/static/console.js" defer>', "")
    assert "__consumer_offsets" not in console.get("/topics").text
    eventually(lambda: console.get("/topics", params={"internal": "yes", "q": "__"}), "__consumer_offsets")


def test_read_only_shows_the_command_and_no_button(start: Start, broker: Broker) -> None:
    with Admin(broker.client_config()) as admin:
        admin.create_topics(["stays"])
    console = start(read_only=True)
    page = console.get("/topics/stays/delete")
    assert "ottla topics delete stays" in page.text
    assert "<button disabled>Delete</button>" in page.text
    assert console.post("/topics/stays/delete", data={"csrf": csrf(page)}).status_code == 403
    with Admin(broker.client_config()) as admin:
        assert "stays" in admin.list_topics()


def test_a_user_sees_and_does_only_what_the_acls_allow() -> None:
    from ottla.console.server import ConsoleThread
    from ottla.console.settings import Settings

    acls = ["alice describe,describe_configs topic hers"]
    with Broker(users={"alice": "her password"}, acls=acls) as broker:
        with Admin(broker.client_config()) as admin:
            admin.create_topics(["hers", "secret"])
        given = broker.client_config("alice")
        config = {name: value for name, value in given.items() if name not in ("sasl.username", "sasl.password")}
        thread = ConsoleThread(Settings(config=config, users=True))
        with httpx.Client(base_url=thread.url, headers={"accept": "text/html"}) as console:
            form = {"user": "alice", "password": "her password", "csrf": csrf(console.get("/login"))}
            assert console.post("/login", data=form).status_code == 303
            eventually(lambda: console.get("/topics"), "hers")
            assert "secret" not in console.get("/topics").text
            assert console.get("/topics/secret").status_code in (403, 404)
            refused = confirm(console, "/topics/hers/delete")
            assert refused.status_code == 409
            assert 'role="alert"' in refused.text
        thread.stop()


PIPELINE = """\
name = "to-table"
checkpoint = "state"

[[source]]
name = "orders"
topics = ["orders"]
format = "text"

[[sink]]
name = "table"
input = "orders"
format = "parquet"
path = "table"
"""


def test_the_overview_names_a_pipeline_that_failed(start: Start, tmp_path: Path) -> None:
    (tmp_path / "orders.toml").write_text(PIPELINE)
    (tmp_path / "state").mkdir()
    flow = {"name": "table", "state": "failed", "batches": 1, "rows": 1, "written": 1, "recent": []}
    run = {"started_at": 0, "saved_at": 1, "flows": [flow], "ending": "failed", "cause": "the disk <is> full"}
    (tmp_path / "state" / "progress.json").write_text(json.dumps(run))
    text = start(pipelines=(str(tmp_path),)).get("/").text
    assert "Pipelines that need you" in text
    assert "the disk &lt;is&gt; full" in text
    assert 'href="/pipelines/orders"' in text
