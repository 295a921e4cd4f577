"""Pages of records from a real broker: every record once, in both directions, with limits and transactions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

import ottla
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.cluster.cluster import Cluster
from ottla.console import reading
from ottla.console.reading import Bounds, Limits, Page, Task, find_bounds, offsets_at, read_newer, read_older, read_one
from ottla.console.views.records import Row, Search

TOPIC = "three"
COUNT = 200


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with ottla.Broker() as broker:
        servers = broker.bootstrap_servers
        with ottla.Admin({"bootstrap.servers": servers}) as admin:
            # Its records are old: on a slow machine retention would delete them before the last test.
            kept = ottla.NewTopic(TOPIC, 3, configs={"retention.ms": "-1"})
            admin.create_topics([kept, ottla.NewTopic("large", 1), ottla.NewTopic("tx", 1)])
        with ottla.Producer({"bootstrap.servers": servers, "linger.ms": 0, "batch.size": 2000}) as producer:
            for number in range(COUNT):
                value = f"value {number}".encode()
                producer.send(TOPIC, value, partition=number % 7 % 3, timestamp=1_000 + number)
                if number % 20 == 0:
                    producer.flush()
            producer.send("large", b"x" * 200_000, key=b"big", partition=0)
        with ottla.Producer({"bootstrap.servers": servers, "transactional.id": "t"}) as producer:
            producer.init_transactions()
            for commits in (True, False):
                producer.begin_transaction()
                producer.send("tx", b"kept" if commits else b"dropped", partition=0)
                producer.flush()
                producer.commit_transaction() if commits else producer.abort_transaction()
        yield servers


@asynccontextmanager
async def connected(bootstrap: str, topic: str = TOPIC) -> AsyncIterator[Cluster]:
    async with AsyncAdmin({"bootstrap.servers": bootstrap}) as admin:
        await admin.cluster.topic(topic)
        yield admin.cluster


async def bounds_of(cluster: Cluster, topic: str = TOPIC, isolation: str = "read_uncommitted") -> Bounds:
    return await find_bounds(cluster, topic, (await cluster.topic(topic)).partitions, isolation)


def numbers(rows: list[Row]) -> list[int]:
    return [int((row.value or b"").split()[1]) for row in rows]


async def test_pages_forward_have_every_record_once_in_order_of_time(bootstrap: str) -> None:
    async with connected(bootstrap) as cluster:
        bounds = await bounds_of(cluster)
        assert bounds.records == COUNT
        at, seen = dict(bounds.starts), list[int]()
        while at != bounds.ends:
            page = await read_newer(cluster, Task(topic=TOPIC, limit=30), bounds, at)
            assert len(page.rows) in (30, COUNT % 30)
            at, seen = page.at, [*seen, *numbers(page.rows)]
        assert seen == list(range(COUNT))


async def test_pages_backward_have_every_record_once(bootstrap: str) -> None:
    async with connected(bootstrap) as cluster:
        bounds = await bounds_of(cluster)
        before, seen = dict(bounds.ends), list[int]()
        while before != bounds.starts:
            page = await read_older(cluster, Task(topic=TOPIC, limit=30), bounds, before)
            assert page.rows
            # What a page offers as newer is what came before it.
            assert page.at == before
            before, seen = page.before, [*numbers(page.rows), *seen]
        assert seen == list(range(COUNT))


async def test_one_partition_from_a_time_or_an_offset(bootstrap: str) -> None:
    async with connected(bootstrap) as cluster:
        bounds = await find_bounds(cluster, TOPIC, [1], "read_uncommitted")
        start = await offsets_at(cluster, TOPIC, bounds, 1_100)
        page = await read_newer(cluster, Task(topic=TOPIC, limit=3), bounds, start)
        expected = [number for number in range(100, COUNT) if number % 7 % 3 == 1][:3]
        assert numbers(page.rows) == expected
        assert {row.partition for row in page.rows} == {1}
        assert page.at == {1: page.rows[-1].offset + 1}
        late = await offsets_at(cluster, TOPIC, bounds, 10_000_000)
        assert late == bounds.ends


async def test_a_search_goes_on_where_it_stopped(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "FETCH_BYTES", 1_000)
    monkeypatch.setattr(reading, "LEAST_FETCH_BYTES", 500)
    async with connected(bootstrap) as cluster:
        bounds = await bounds_of(cluster)
        limits = Limits(records=60)
        for forward in (True, False):
            cursor, seen, pages = dict(bounds.starts if forward else bounds.ends), list[int](), list[Page]()
            while cursor != (bounds.ends if forward else bounds.starts):
                task = Task(topic=TOPIC, search=Search(b"value 1"), limit=10, limits=limits)
                page = await (read_newer if forward else read_older)(cluster, task, bounds, cursor)
                cursor = page.at if forward else page.before
                seen += numbers(page.rows)
                pages.append(page)
                assert len(pages) < 50
            assert sorted(seen) == [number for number in range(COUNT) if str(number).startswith("1")]
        nothing = Task(topic=TOPIC, search=Search(b"nowhere"), limits=limits)
        found = await read_newer(cluster, nothing, bounds, bounds.starts)
        assert (found.rows, found.stopped_by) == ([], "records")
        assert 60 <= found.records < COUNT
        assert found.bytes > 0


async def test_a_search_ends_after_its_seconds(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "FETCH_BYTES", 1_000)
    monkeypatch.setattr(reading, "LEAST_FETCH_BYTES", 500)
    ticks = iter(range(0, 1000, 3))
    async with connected(bootstrap) as cluster:
        bounds = await bounds_of(cluster)
        task = Task(topic=TOPIC, search=Search(b"nowhere"), clock=lambda: float(next(ticks)))
        page = await read_newer(cluster, task, bounds, bounds.starts)
        assert page.stopped_by == "seconds"
        assert bounds.starts != page.at != bounds.ends


async def test_offsets_outside_are_moved_inside(bootstrap: str) -> None:
    async with connected(bootstrap) as cluster:
        bounds = await bounds_of(cluster)
        page = await read_newer(cluster, Task(topic=TOPIC), bounds, {0: 10**12, 7: 3})
        assert (page.rows, page.at) == ([], bounds.ends)


async def test_large_values_are_kept_in_part_and_read_whole_alone(bootstrap: str) -> None:
    async with connected(bootstrap, "large") as cluster:
        bounds = await bounds_of(cluster, "large")
        (row,) = (await read_older(cluster, Task(topic="large"), bounds, bounds.ends)).rows
        assert (len(row.value or b""), row.value_size) == (65_536, 200_000)
        found = await read_one(cluster, "large", 0, 0)
        assert found is not None
        assert found[1] == b"x" * 200_000
        assert await read_one(cluster, "large", 0, 1) is None
        assert await read_one(cluster, "large", 0, 99) is None


async def test_transactions_are_shown_with_their_ends_or_left_out(bootstrap: str) -> None:
    async with connected(bootstrap, "tx") as cluster:
        bounds = await bounds_of(cluster, "tx")
        page = await read_older(cluster, Task(topic="tx"), bounds, bounds.ends)
        told = [(row.value, row.marker, row.outcome) for row in page.rows]
        assert told == [
            (b"kept", None, "committed"),
            (None, "commit", None),
            (b"dropped", None, "aborted"),
            (None, "abort", None),
        ]
        committed = await bounds_of(cluster, "tx", "read_committed")
        page = await read_older(cluster, Task(topic="tx", isolation="read_committed"), committed, committed.ends)
        assert [row.value for row in page.rows] == [b"kept"]
        one = await read_one(cluster, "tx", 0, 1)
        assert one is not None
        assert (one[0].marker, one[1]) == ("commit", None)
        offsets = [row.offset for row in page.rows]
        assert all(first < second for first, second in pairwise(offsets))
