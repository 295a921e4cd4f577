"""The pages of the console, with ottla and (`make compat-kafka`) with Apache Kafka."""

from __future__ import annotations

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


def test_what_kafka_does_not_record_about_a_rebalance_is_unknown(
    console: httpx.Client, make_topic: MakeTopic, bootstrap_servers: str
) -> None:
    topic = make_topic(partitions=1)
    with ottla.Consumer(bootstrap_servers=bootstrap_servers, group_id=f"members-of-{topic}") as consumer:
        consumer.subscribe([topic])
        deadline = time.monotonic() + 30
        while not consumer.assignment():
            consumer.poll(timeout_ms=100)
            assert time.monotonic() < deadline
        text = _loaded(console, f"/groups/members-of-{topic}", "Rebalances")
    does_not_tell = os.environ.get("OTTLA_COMPAT_BROKER") == "kafka"
    assert ("Apache Kafka does not record it" in text) == does_not_tell
