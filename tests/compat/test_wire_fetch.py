"""Fetch requests on the wire: errors, limits in bytes, waiting, and incremental sessions (KIP-227)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest

from .conftest import MakeTopic
from .test_wire_versions import produce, topic_id
from .wire import Wire, batch

VERSION = 13
OUT_OF_RANGE, UNKNOWN_PARTITION, UNKNOWN_SESSION, OLD_SESSION_EPOCH, NEWER_EPOCH, UNKNOWN_ID = 1, 3, 70, 71, 75, 100
PARTITIONS = 3


class Part(NamedTuple):
    partition: int
    error: int
    high_watermark: int
    size: int


class Fetching:
    """A topic, a connection, and fetches from it."""

    def __init__(self, wire: Wire, topic: str) -> None:
        self.wire, self.topic, self.topic_id = wire, topic, topic_id(wire, topic)
        self.session_id = 0

    def append(self, partition: int, size: int = 10, count: int = 1) -> int:
        """Write batches of one record; return the size of each batch."""
        records = batch([b"x" * size])
        content = produce(self.topic, self.topic_id, records)
        content["topic_data"][0]["partition_data"][0]["index"] = partition
        for _ in range(count):
            answer = self.wire.call("produce", 9, content)
            assert answer.responses[0].partition_responses[0].error_code == 0
        return len(records)

    def content(
        self,
        offsets: Sequence[tuple[int, int]] = (),
        *,
        known_id: uuid.UUID | None = None,
        partition_max_bytes: int = 1_000_000,
        leader_epoch: int = -1,
        forget: Sequence[int] = (),
        **more: Any,
    ) -> dict[str, Any]:
        """Build a fetch request for (partition, offset)."""
        topic = {"topic": self.topic, "topic_id": known_id or self.topic_id}
        limits = {"partition_max_bytes": partition_max_bytes, "current_leader_epoch": leader_epoch}
        partitions = [{"partition": number, "fetch_offset": offset, **limits} for number, offset in offsets]
        return {
            "replica_id": -1,
            "max_wait": 100,
            "min_bytes": 1,
            "max_bytes": 10_000_000,
            "topics": [{**topic, "partitions": partitions}] if partitions else [],
            "forgotten_topics_data": [{**topic, "partitions": forget}] if forget else [],
            **more,
        }

    def fetch(self, offsets: Sequence[tuple[int, int]] = (), **more: Any) -> tuple[int, list[Part]]:
        """Return the error of the response and its partitions."""
        answer = self.wire.call("fetch", VERSION, self.content(offsets, **more))
        self.session_id = answer.session_id
        found = [p for t in answer.responses for p in t.partitions]
        return int(answer.error_code), [
            Part(p.partition_index, int(p.error_code), p.high_watermark, len(p.records or b"")) for p in found
        ]


@pytest.fixture
def topic(bootstrap_servers: str, make_topic: MakeTopic) -> Iterator[Fetching]:
    with Wire(bootstrap_servers) as wire:
        yield Fetching(wire, make_topic(PARTITIONS))


@pytest.mark.parametrize("offset", [5, -1])
def test_an_offset_that_is_not_there(topic: Fetching, offset: int) -> None:
    assert topic.fetch([(0, offset)]) == (0, [Part(0, OUT_OF_RANGE, -1, 0)])


def test_a_partition_and_a_topic_that_are_not_there(topic: Fetching) -> None:
    assert topic.fetch([(9, 0)]) == (0, [Part(9, UNKNOWN_PARTITION, -1, 0)])
    assert topic.fetch([(0, 0)], known_id=uuid.uuid4()) == (0, [Part(0, UNKNOWN_ID, -1, 0)])


def test_a_client_that_knows_a_newer_leader(topic: Fetching) -> None:
    assert topic.fetch([(0, 0)], leader_epoch=1_000) == (0, [Part(0, NEWER_EPOCH, -1, 0)])


def test_the_first_batch_comes_whole_whatever_the_limits(topic: Fetching) -> None:
    size = topic.append(0, 1_000, count=5)
    topic.append(1, 1_000)
    for limits in ({"partition_max_bytes": 1}, {"partition_max_bytes": 0}, {"max_bytes": 1}, {"max_bytes": 0}):
        error, parts = topic.fetch([(0, 0), (1, 0)], **limits)
        assert error == 0
        assert parts[0] == Part(0, 0, 5, size)
        if "max_bytes" in limits:
            assert parts[1] == Part(1, 0, 1, 0)


def test_the_limits_hold_for_what_comes_after(topic: Fetching) -> None:
    size = topic.append(0, 1_000, count=5)
    topic.append(1, 1_000, count=5)
    _, parts = topic.fetch([(0, 0), (1, 0)], partition_max_bytes=2 * size + 10)
    assert all(2 * size <= part.size <= 2 * size + 10 for part in parts)
    _, parts = topic.fetch([(0, 0), (1, 0)], max_bytes=3 * size)
    assert 3 * size - 10 <= sum(part.size for part in parts) <= 3 * size
    assert parts[0].size > parts[1].size


def timed(topic: Fetching, *offsets: tuple[int, int], **more: Any) -> tuple[float, list[Part]]:
    started = time.monotonic()
    error, parts = topic.fetch(offsets, **more)
    assert error == 0
    return time.monotonic() - started, parts


def test_how_long_a_fetch_waits(topic: Fetching) -> None:
    size = topic.append(0)
    took, parts = timed(topic, (1, 0), max_wait=400)
    assert 0.35 < took < 5
    assert parts == [Part(1, 0, 0, 0)]
    took, parts = timed(topic, (0, 0), max_wait=400, min_bytes=1_000_000)
    assert 0.35 < took < 5
    assert parts == [Part(0, 0, 1, size)]
    waits: list[dict[str, Any]] = [{"min_bytes": 0, "max_wait": 20_000}, {"max_wait": 0}]
    for at_once in waits:
        took, parts = timed(topic, (1, 0), **at_once)
        assert took < 5
        assert parts == [Part(1, 0, 0, 0)]


def test_a_record_that_comes_at_the_same_moment_as_the_fetch(topic: Fetching, bootstrap_servers: str) -> None:
    """Whatever the order inside the broker, the fetch does not wait until its time is up."""
    with Wire(bootstrap_servers) as other:
        append = produce(topic.topic, topic.topic_id, batch([b"now"]))
        for offset in range(200):
            started = time.monotonic()
            waiting = topic.wire.send("fetch", VERSION, topic.content([(0, offset)], max_wait=10_000))
            appending = other.send("produce", 9, append)
            topic.wire.receive("fetch", VERSION, waiting)
            assert time.monotonic() - started < 5
            other.receive("produce", 9, appending)


def test_an_error_ends_the_wait(topic: Fetching) -> None:
    size = topic.append(1)
    took, parts = timed(topic, (0, 300), (1, 0), max_wait=20_000, min_bytes=1_000_000)
    assert took < 5
    assert parts == [Part(0, OUT_OF_RANGE, -1, 0), Part(1, 0, 1, size)]


def test_a_session_tells_only_what_is_new(topic: Fetching) -> None:
    size = topic.append(0)
    everything = [Part(0, 0, 1, size), Part(1, 0, 0, 0), Part(2, 0, 0, 0)]
    assert topic.fetch([(0, 0), (1, 0), (2, 0)], session_epoch=0, max_wait=0) == (0, everything)
    session = topic.session_id
    assert session > 0
    here: dict[str, Any] = {"session_id": session, "max_wait": 0}
    assert topic.fetch(session_epoch=1, **here) == (0, [Part(0, 0, 1, size)])  # not read yet: reported again
    assert topic.fetch([(0, 1)], session_epoch=2, **here) == (0, [])
    assert topic.session_id == session
    topic.append(1)
    assert topic.fetch(session_epoch=3, **here) == (0, [Part(1, 0, 1, size)])
    assert topic.fetch([(1, 1)], session_epoch=4, **here) == (0, [])


def test_a_session_wakes_up_for_any_of_its_partitions(topic: Fetching, bootstrap_servers: str) -> None:
    topic.fetch([(0, 0), (1, 0), (2, 0)], session_epoch=0, max_wait=0)
    with Wire(bootstrap_servers) as other:
        content = {"replica_id": -1, "max_wait": 20_000, "min_bytes": 1, "topics": [], "session_id": topic.session_id}
        waiting = topic.wire.send("fetch", VERSION, {**content, "session_epoch": 1})
        size = Fetching(other, topic.topic).append(2)
        answer = topic.wire.receive("fetch", VERSION, waiting)
    assert [(p.partition_index, len(p.records)) for t in answer.responses for p in t.partitions] == [(2, size)]


def test_a_session_forgets_and_learns_partitions(topic: Fetching) -> None:
    topic.fetch([(0, 0), (1, 0)], session_epoch=0, max_wait=0)
    here: dict[str, Any] = {"session_id": topic.session_id, "max_wait": 0}
    for partition in range(PARTITIONS):
        size = topic.append(partition)
    assert topic.fetch([(2, 0)], forget=[0], session_epoch=1, **here) == (0, [Part(1, 0, 1, size), Part(2, 0, 1, size)])
    assert topic.fetch([(9, 0), (1, 1), (2, 1)], session_epoch=2, **here) == (0, [Part(9, UNKNOWN_PARTITION, -1, 0)])


def test_a_session_is_kept_in_step_by_its_epoch(topic: Fetching) -> None:
    topic.fetch([(0, 0)], session_epoch=0, max_wait=0)
    session = topic.session_id
    assert topic.fetch(session_id=session, session_epoch=1, max_wait=0) == (0, [])
    assert topic.fetch(session_id=session, session_epoch=1, max_wait=0) == (OLD_SESSION_EPOCH, [])
    assert topic.fetch(session_id=session, session_epoch=2, max_wait=0) == (0, [])


def test_a_session_that_is_not_there(topic: Fetching) -> None:
    assert topic.fetch(session_id=12_345, session_epoch=1) == (UNKNOWN_SESSION, [])
    topic.fetch([(0, 0)], session_epoch=0, max_wait=0)
    session = topic.session_id
    assert topic.fetch(session_id=session, session_epoch=-1) == (0, [])  # closes it
    assert topic.fetch(session_id=session, session_epoch=1) == (UNKNOWN_SESSION, [])


def test_without_a_session(topic: Fetching) -> None:
    topic.fetch([(0, 0)], session_epoch=-1, max_wait=0)
    assert topic.session_id == 0
