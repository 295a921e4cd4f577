"""Nasty values in every part of every address: a page says what is wrong, and there is never a traceback."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import quote

import httpx
import pytest
from starlette.routing import Route

from browser.pipeline_case import prepare
from console.conftest import Start
from ottla import Admin, Broker, NewTopic, Producer, TopicPartition
from ottla.console import live, login
from ottla.console.pages import all_routes

NASTY = (
    "9" * 5000,
    "-" + "9" * 5000,
    "-1",
    str(2**31),
    str(2**63),
    "NaN",
    "1e999",
    "٣",
    "²",
    "0xg",
    "1:2:3,:",
    "999999-01-01T00:00",
    "9" * 30 + "h",
    "\x00",
    "a\r\nset-cookie: b=c",
    "\x1b[31m\u202e",
    "<script>alert(1)</script>{{ 7 * 7 }}",
    "x" * 20_000,
)
RAW = ("%zz", "%ff%fe", "~uD800", "%2e%2e", ";a=b&&==&")
"""What goes into an address as it is."""
GOOD = {"group": "fuzzed", "topic": "fuzzed", "pipeline": "orders", "partition": "0", "offset": "0", "number": "0"}
_RECORDS = ["q", "in", "from", "offset", "time", "at", "before", "partition"]
_RECORDS += ["key", "value", "nested", "isolation", "limit", "follow"]
QUERIES: dict[str, list[str]] = {
    "/": ["q"],
    "/login": ["next"],
    "/live": ["since"],
    "/topics": ["q", "sort", "page", "internal"],
    "/create-topic": ["name", "partitions", "replicas", "configs"],
    "/topics/{topic:name}": ["q", "page"],
    "/topics/{topic:name}/config": ["name", "value", "reset"],
    "/topics/{topic:name}/partitions": ["total"],
    "/topics/{topic:name}/delete": ["x"],
    "/topics/{topic:name}/produce": ["key", "key_as", "value", "value_as", "headers", "partition", "edit"],
    "/records": ["q"],
    "/topics/{topic:name}/records": _RECORDS,
    "/topics/{topic:name}/records/tail": _RECORDS,
    "/topics/{topic:name}/records/{partition}/{offset}": ["key", "value", "nested"],
    "/topics/{topic:name}/records/{partition}/{offset}/value": ["x"],
    "/groups": ["q", "sort", "state", "page"],
    "/groups/{group:name}": ["period"],
    "/groups/{group:name}/rebalances/{number}": ["period"],
    "/groups/{group:name}/plan": ["assignor", "add", "remove", "partitions.fuzzed"],
    "/groups/{group:name}/reset": ["to", "topic", "value"],
    "/groups/{group:name}/delete": ["x"],
    "/groups/{group:name}/remove": ["member"],
    "/transactions": ["q", "state"],
    "/transactions/abort": ["topic", "partition", "start_offset"],
    "/pipelines": ["x"],
    "/pipelines/{pipeline:name}": ["x"],
    "/pipelines/{pipeline:name}/graph.svg": ["x"],
    "/pipelines/{pipeline:name}/replay": ["error", "from_topic", "limit", "max_replays"],
    "/pipelines/{pipeline:name}/audit": ["x"],
    "/lab": ["group", "since", "scenario", "members", "seed", "design"],
}
BESIDE: dict[tuple[str, str], dict[str, str]] = {
    ("/groups/{group:name}/reset", "value"): {"to": "offset"},
    ("/lab", "since"): {"group": "fuzzed"},
    ("/lab", "members"): {"scenario": "scale"},
    ("/lab", "seed"): {"scenario": "scale", "members": "1000"},
    ("/lab", "design"): {"scenario": "scale", "members": "1000"},
    ("/create-topic", "partitions"): {"name": "new"},
    ("/create-topic", "replicas"): {"name": "new"},
    ("/create-topic", "configs"): {"name": "new"},
    ("/topics/{topic:name}/config", "value"): {"name": "retention.ms"},
    ("/topics/{topic:name}/produce", "partition"): {"value": "1"},
    ("/topics/{topic:name}/produce", "headers"): {"value": "1"},
    ("/transactions/abort", "partition"): {"topic": "fuzzed", "start_offset": "0"},
    ("/transactions/abort", "start_offset"): {"topic": "fuzzed", "partition": "0"},
    ("/pipelines/{pipeline:name}/replay", "limit"): {"max_replays": "3"},
    ("/pipelines/{pipeline:name}/replay", "error"): {"max_replays": "3"},
    ("/pipelines/{pipeline:name}/replay", "from_topic"): {"max_replays": "3"},
}
"""Values without which the one that is tried would not be looked at."""
ROUTES = [one for one in (*login.routes, *live.routes, *all_routes()) if isinstance(one, Route)]
PATHS = sorted({one.path for one in ROUTES if "GET" in (one.methods or ())})


@pytest.fixture(scope="module")
def fuzzed(start: Start, broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> httpx.Client:
    directory = tmp_path_factory.mktemp("pipelines")
    prepare(directory, broker, "orders")
    with Admin(broker.client_config()) as admin, Producer(broker.client_config()) as producer:
        admin.create_topics([NewTopic("fuzzed", 2)])
        producer.send("fuzzed", b"1", partition=0)
        producer.flush()
        admin.alter_group_offsets("fuzzed", {TopicPartition("fuzzed", 0): 0})
    return start(pipelines=(str(directory),))


def test_every_route_is_tried() -> None:
    assert sorted(QUERIES) == PATHS


@contextmanager
def answer(client: httpx.Client, address: str) -> Iterator[httpx.Response]:
    """The answer to an address, character by character as it is written here. A stream is left at once."""
    url = httpx.URL(str(client.base_url)).copy_with(raw_path=address.encode("ascii"))
    with client.stream("GET", url, timeout=30) as response:
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            response.read()
        yield response


def wrong_with(client: httpx.Client, address: str) -> str | None:
    """What a user could complain about."""
    with answer(client, address) as response:
        if response.status_code not in (200, 303, 307, 400, 404) or "set-cookie" in response.headers:
            return f"{response.status_code} for {address[:200]}\n{told(response)}"
        if response.status_code >= 400 and (
            len(told(response)) < 20 or (is_html(response) and "<script>alert" in response.text)
        ):
            return f"{address[:200]} says only {told(response)}"
    return None


def is_html(response: httpx.Response) -> bool:
    return response.headers.get("content-type", "").startswith("text/html")


def told(response: httpx.Response) -> str:
    """What the page says besides its frame."""
    main = re.search(r"<main.*?</main>", response.text, re.DOTALL)
    return re.sub(r"<[^>]*>|\s+", " ", main[0] if main else response.text).strip()


def filled(path: str, given: Mapping[str, str]) -> str:
    return re.sub(r"\{(\w+)[^}]*\}", lambda found: given[found[1]], path)


def addresses(path: str) -> Iterator[str]:
    """The addresses of a route with one nasty value each."""
    values = [*(quote(one, safe="") for one in NASTY), *RAW]
    for name in re.findall(r"\{(\w+)", path):
        yield from (filled(path, {**GOOD, name: value}) for value in values)
    for name in QUERIES[path]:
        beside = "".join(f"&{key}={value}" for key, value in BESIDE.get((path, name), {}).items())
        yield from (f"{filled(path, GOOD)}?{quote(name)}={value}{beside}" for value in values)


@pytest.mark.parametrize("path", PATHS)
def test_a_nasty_address_gets_a_clear_answer(fuzzed: httpx.Client, path: str) -> None:
    wrong = [told for address in addresses(path) if (told := wrong_with(fuzzed, address)) is not None]
    assert not wrong, "\n".join(wrong)
