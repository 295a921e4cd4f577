"""Every command that a page shows is one that `ottla` understands, also for names that look like options."""

from __future__ import annotations

import html
import re
import shlex
from collections.abc import Iterator
from urllib.parse import quote

import httpx
import pytest

from browser.pipeline_case import prepare
from console.conftest import Start
from ottla import Admin, Broker, Consumer, NewTopic, Producer, TopicPartition
from ottla.cli.main import build_parser

NAMES = ("paid", "-x", "--help", "a b'\"$(id)", "ü/delete")
TOPIC = "-paid"
_COMMAND = re.compile(r'<div class="command"><code>(.*?)</code>', re.DOTALL)
PAGES = (
    "/",
    "/groups",
    "/pipelines",
    "/pipelines/orders",
    "/pipelines/orders/audit",
    "/pipelines/orders/replay?error=-x&from_topic=-y&limit=3&max_replays=2",
    "/pipelines/broken",
    "/topics",
    "/create-topic?name=new&partitions=2&configs=retention.ms%3D-1",
    "/lab?scenario=failover&members=1&design=consumer",
    "/transactions/abort?topic=open&partition=0&start_offset=0",
    *(f"/topics/{TOPIC}/{rest}" for rest in ("records", "records/0/0", "produce?key=-k&value=-v", "delete")),
    *(f"/topics/{TOPIC}/{rest}" for rest in ("partitions?total=3", "config?name=retention.ms&value=-1")),
)
OF_GROUPS = (
    "",
    "/delete",
    "/plan?add=2",
    "/reset?to=shift&value=-1",
    "/reset?to=earliest",
    f"/reset?topic={TOPIC}&to=latest",
)


@pytest.fixture(scope="module")
def client(start: Start, broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    directory = tmp_path_factory.mktemp("pipelines")
    prepare(directory, broker, "orders")
    (directory / "broken.toml").write_text('name = "broken"\n')
    config = broker.client_config()
    with Admin(config) as admin, Producer({**config, "transactional.id": "open"}) as producer:
        admin.create_topics([NewTopic(TOPIC, 2), NewTopic("open", 1)])
        for name in NAMES:
            admin.alter_group_offsets(name, {TopicPartition(TOPIC, 0): 1})
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(TOPIC, b"1", partition=0)
        producer.commit_transaction()
        producer.begin_transaction()
        producer.send("open", b"1", partition=0)
        producer.flush()
        yield start(pipelines=(str(directory),))
        producer.abort_transaction()


def checked(client: httpx.Client, path: str) -> int:
    """Parse all commands of a page; returns how many there are."""
    page = client.get(path)
    assert page.status_code == 200, page.text
    found = [html.unescape(one) for one in _COMMAND.findall(page.text)]
    for command in found:
        if command.startswith("from ottla "):
            compile(command, path, "exec")
            continue
        words = shlex.split(command)
        for place, word in enumerate(words):
            if word == "ottla":
                end = words.index("|", place) if "|" in words[place:] else len(words)
                arguments = words[place + 1 : end]
                # It fails with SystemExit if it does not understand them.
                assert build_parser(arguments[0]).parse_args(arguments).run is not None, command
    return len(found)


def test_commands_of_pages(client: httpx.Client) -> None:
    counts = {path: checked(client, path) for path in PAGES}
    assert counts[f"/topics/{TOPIC}/delete"] == 1
    assert sum(counts.values()) >= 12


@pytest.mark.parametrize("name", NAMES)
def test_commands_of_groups(client: httpx.Client, name: str) -> None:
    group = quote(name.replace("/", "~2F"))
    assert [checked(client, f"/groups/{group}{rest}") >= 1 for rest in OF_GROUPS] == [True] * len(OF_GROUPS)


def test_commands_of_a_group_with_members(client: httpx.Client, broker: Broker) -> None:
    config = {**broker.client_config(), "group.id": "-busy", "group.instance.id": "-one"}
    with Consumer(config) as consumer:
        consumer.subscribe([TOPIC])
        while not consumer.assignment():
            consumer.poll(timeout_ms=100)
        member = consumer.group_metadata().member_id
        for rest in (f"/remove?member={quote(member)}", f"/plan?add=2&remove={quote(member)}&partitions.{TOPIC}=4", ""):
            assert checked(client, f"/groups/-busy{rest}") >= 1
        assert checked(client, "/lab?group=-busy&since=1h") == 1
