"""The pages of the console, with ottla and (`make compat-kafka`) with Apache Kafka."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator

import httpx
import pytest

import ottla
from ottla.console.pages import pages
from ottla.console.server import ConsoleThread
from ottla.console.settings import Settings

from .conftest import MakeTopic

PAGES = [page.path for page in pages()]


@pytest.fixture(scope="module")
def console(bootstrap_servers: str) -> Iterator[httpx.Client]:
    thread = ConsoleThread(Settings(config={"bootstrap.servers": bootstrap_servers}))
    with httpx.Client(base_url=thread.url, timeout=30) as client:
        yield client
    thread.stop()


def _loaded(console: httpx.Client, path: str, wanted: str) -> str:
    """Load a page until it shows something that is read in the background: on a slow machine, once in a minute."""
    deadline = time.monotonic() + 120
    while wanted not in (text := console.get(path).text):
        assert time.monotonic() < deadline, text
        time.sleep(0.1)
    return text


@pytest.mark.parametrize("path", PAGES)
def test_every_page_opens(console: httpx.Client, path: str) -> None:
    page = console.get(path)
    assert page.status_code == 200
    assert "<h1" in page.text


def test_the_overview_knows_the_brokers_and_a_group_that_is_behind(
    console: httpx.Client, make_topic: MakeTopic, bootstrap_servers: str
) -> None:
    topic = make_topic(partitions=2)
    with ottla.Producer(bootstrap_servers=bootstrap_servers) as producer:
        for number in range(20):
            producer.send(topic, value=b"%d" % number, partition=0)
    group = f"group-of-{topic}"
    with ottla.Admin(bootstrap_servers=bootstrap_servers) as admin:
        admin.alter_group_offsets(group, {ottla.TopicPartition(topic, 0): 5})
    text = _loaded(console, "/", group)
    row = text[text.index(group) :].partition("</tr>")[0]
    assert '<td class="num">15</td>' in row
    assert "unknown" not in row
    # One node is broker and controller.
    assert re.search(r"<dt>Controller</dt><dd>\d+", text)
    assert "● up" in text


def test_a_topic_has_offsets_sizes_and_configs_with_their_documentation(
    console: httpx.Client, make_topic: MakeTopic, bootstrap_servers: str
) -> None:
    topic = make_topic(partitions=2, **{"retention.ms": "123456789"})
    with ottla.Producer(bootstrap_servers=bootstrap_servers) as producer:
        producer.send(topic, value=b"x" * 1000, partition=1)
    text = _loaded(console, f"/topics/{topic}", " kB")
    assert "123456789" in text
    assert "● this topic" in text
    assert "the brokers send no documentation" not in text
    plan = console.get(f"/topics/{topic}/config", params={"name": "retention.ms", "value": "-5"})
    assert plan.status_code == 400
    assert console.get("/topics/no-such-topic").status_code == 404


@contextlib.contextmanager
def _member(bootstrap_servers: str, protocol: str, topic: str) -> Iterator[str]:
    """The name of a group with one member, which has read and committed."""
    config = {"group.protocol": protocol, "auto.offset.reset": "earliest", "group.id": f"{protocol}-of-{topic}"}
    with ottla.Producer(bootstrap_servers=bootstrap_servers) as producer:
        producer.send(topic, value=b"read")
    with ottla.Consumer({"bootstrap.servers": bootstrap_servers, **config}) as consumer:
        consumer.subscribe([topic])
        deadline = time.monotonic() + 60
        while not list(consumer.poll(timeout_ms=100)):
            assert time.monotonic() < deadline
        consumer.commit()
        yield config["group.id"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_what_kafka_does_not_record_about_a_rebalance_is_unknown(
    console: httpx.Client, make_topic: MakeTopic, bootstrap_servers: str, protocol: str
) -> None:
    topic = make_topic(partitions=1)
    with _member(bootstrap_servers, protocol, topic) as name:
        group = f"/groups/{name}"
        text = _loaded(console, group, f"{group}/rebalances/")
        number = re.findall(rf"{group}/rebalances/(\d+)", text)[0]
        rebalance = console.get(f"{group}/rebalances/{number}").text
        inner = ("/plan?add=1", "/reset?to=earliest", "/delete", "?period=7d")
        opened = {path: console.get(group + path).status_code for path in inner}
    assert opened == dict.fromkeys(inner, 200)
    does_not_tell = os.environ.get("OTTLA_COMPAT_BROKER") == "kafka"
    assert ("Apache Kafka does not record it" in text) == does_not_tell
    assert ("Apache Kafka does not record it" in rebalance) == does_not_tell
    assert ("Replay in the lab" in text) != does_not_tell


def test_the_pages_of_a_topic_with_an_open_transaction(
    console: httpx.Client, make_topic: MakeTopic, bootstrap_servers: str
) -> None:
    topic = make_topic(partitions=1)
    config = {"bootstrap.servers": bootstrap_servers, "transactional.id": f"transactions-of-{topic}"}
    with ottla.Producer(config) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, value=b"<b>open</b>", partition=0)
        producer.flush()
        text = _loaded(console, "/transactions", f"{topic}-0")
        records = console.get(f"/topics/{topic}/records").text
        paths = (
            "/records/0/0",
            "/records?q=open&isolation=read_committed",
            "/produce?value=1",
            "/config?name=retention.ms&value=1000",
            "/partitions?total=2",
            "/delete",
        )
        addresses = [
            *(f"/topics/{topic}{path}" for path in paths),
            f"/transactions/abort?topic={topic}&partition=0&start_offset=0",
            f"/create-topic?name=another-{topic}",
        ]
        opened = {one: console.get(one).status_code for one in addresses}
        producer.abort_transaction()
    assert opened == dict.fromkeys(addresses, 200)
    assert config["transactional.id"] in text
    assert "open for" in text
    assert "&lt;b&gt;open&lt;/b&gt;" in records
