"""What is fetched, from which broker, and what is handed out: sessions, pipelining, pauses, errors in order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.consuming.consuming_values import T0, T1, T_ID, batch, fetch_response, fetched, marker, transactional

from ottla.consuming.buffer import Buffer
from ottla.consuming.fetching import MARGIN_BYTES, SAMPLE_BYTES, SHORT_WAIT_MS, Fetch, Fetcher, FetchLimits, Leader
from ottla.consuming.positions import Need, Positions
from ottla.errors import (
    CorruptMessage,
    FetchSessionIdNotFound,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    TopicAuthorizationFailed,
)
from ottla.types import TopicPartition


class Scene:
    """Two partitions of one leader, at offset 0, and a fetcher."""

    def __init__(self, reset: str = "earliest", **limits: Any) -> None:
        self.positions = Positions(reset, in_group=False)
        self.started = 0
        self.buffer = Buffer(self.positions, self._begin)
        self.fetcher = Fetcher(self.positions, self.buffer, FetchLimits(**limits))
        self.leaders: dict[TopicPartition, Leader | None] = {T0: Leader(1, 3, T_ID), T1: Leader(1, 3, T_ID)}
        self.now = 0
        self.positions.assign([T0, T1])
        for key in (T0, T1):
            self.positions.seek(key, 0)

    def _begin(self) -> None:
        self.started += 1

    def plan(self) -> list[Fetch]:
        return self.fetcher.poll(lambda key: self.leaders[key], now=self.now)[0]

    def one(self) -> Fetch:
        (fetch,) = self.plan()
        return fetch

    def answer(self, fetch: Fetch, *partitions: Any, **more: Any) -> Any:
        outcome = self.fetcher.answered(fetch, fetch_response(*partitions, **more), now=self.now)
        for completed in outcome.completed:
            self.buffer.add(completed)
        return outcome

    def values(self, limit: int = 500) -> list[bytes]:
        return [record.value for record in self.buffer.take(limit)]


def asked(fetch: Fetch) -> dict[int, int]:
    return {one["partition"]: one["fetch_offset"] for topic in fetch.message["topics"] for one in topic["partitions"]}


def test_one_fetch_a_broker_is_under_way() -> None:
    scene = Scene()
    scene.leaders[T1] = Leader(2, 3, T_ID)
    first, second = scene.plan()
    assert (first.node, asked(first), second.node, asked(second)) == (1, {0: 0}, 2, {1: 0})
    assert scene.plan() == []
    scene.answer(first)
    assert [fetch.node for fetch in scene.plan()] == [1]


def test_two_fetches_of_a_partition_wait_and_the_next_is_sent_when_one_is_started() -> None:
    scene = Scene()
    scene.positions.remove([T1])
    scene.answer(scene.one(), fetched(batch(0, b"a", b"b")))
    fetch = scene.one()
    assert asked(fetch) == {0: 2}, "behind what is buffered"
    scene.answer(fetch, fetched(batch(2, b"c")))
    assert scene.plan() == [], "two are enough"
    assert scene.values(1) == [b"a"]
    assert scene.started == 1
    fetch = scene.one()
    assert asked(fetch) == {0: 3}
    scene.answer(fetch, fetched(batch(3, b"d")))
    assert scene.values() == [b"b", b"c", b"d"]
    state = scene.positions.get(T0)
    assert state is not None
    assert (state.position, state.epoch) == (4, 3)


def behind(scene: Scene) -> tuple[Fetch, Fetch]:
    """Two partitions that are known to have more, and their two fetches."""
    scene.answer(scene.one(), fetched(batch(0, b"a")), fetched(batch(0, b"b"), partition_index=1), session_id=77)
    first, second = scene.plan()
    return first, second


def test_two_fetches_of_a_half_each_are_under_way_while_the_user_is_faster() -> None:
    scene = Scene()
    first, second = behind(scene)
    assert (asked(first), asked(second)) == ({0: 1}, {1: 1})
    assert (first.message["session_id"], first.message["session_epoch"]) == (77, 1)
    assert first.message["forgotten_topics_data"][0]["partitions"] == [1]
    assert (second.message["session_id"], second.message["session_epoch"]) == (0, -1), "asked without a session"
    assert scene.plan() == []
    assert scene.values() == [b"a", b"b"]
    scene.answer(second, fetched(batch(1, b"d"), partition_index=1))
    (third,) = scene.plan()
    assert (asked(third), third.in_session) == ({1: 2}, False), "the session is in use"
    assert scene.values() == [b"d"]
    scene.answer(first, fetched(batch(1, b"c")), session_id=77)
    (fourth,) = scene.plan()
    assert (asked(fourth), fourth.message["session_epoch"]) == ({0: 2}, 2)
    scene.answer(third, fetched(batch(2, b"f"), partition_index=1))
    scene.answer(fourth, fetched(batch(2, b"e")), session_id=77)
    assert scene.values() == [b"c", b"f", b"e"], "in the order in which they came"


def test_one_fetch_is_under_way_while_the_user_is_slower() -> None:
    scene = Scene()
    first, second = behind(scene)
    scene.answer(first, fetched(batch(1, b"c")), session_id=77)
    scene.answer(second, fetched(batch(1, b"d"), partition_index=1))
    assert scene.values(1) == [b"a"], "three wait behind it"
    assert asked(scene.one()) == {0: 2}
    assert scene.values(1) == [b"b"]
    assert scene.plan() == [], "it waits for the one in flight"


@pytest.mark.parametrize("end", ["one at its end", "least bytes", "uncommitted"])
def test_no_fetch_waits_behind_one_that_may_wait_on_the_broker(end: str) -> None:
    scene = Scene(min_bytes=2 if end == "least bytes" else 1, read_committed=end == "uncommitted")
    other = {"one at its end": {"high_watermark": 1}, "uncommitted": {"last_stable_offset": 1}}.get(end, {})
    scene.answer(
        scene.one(),
        fetched(batch(0, b"a"), aborted_transactions=[]),
        fetched(batch(0, b"b"), partition_index=1, aborted_transactions=[], **other),
    )
    assert asked(scene.one()) == {0: 1, 1: 1}
    scene.positions.seek(T0, 0)
    assert scene.plan() == []


def test_a_fetch_without_a_session_that_fails_leaves_the_session_alone() -> None:
    scene = Scene()
    first, second = behind(scene)
    scene.fetcher.failed(second, now=0)
    assert scene.fetcher.closing() == [], "the first one is in flight"
    scene.answer(first, session_id=77)
    assert scene.values() == [b"a", b"b"]
    assert scene.plan() == [], "after a pause"
    scene.now = 100
    first, second = scene.plan()
    assert (first.message["session_id"], first.message["session_epoch"], asked(second)) == (77, 2, {1: 1})
    assert scene.answer(second, error_code=TopicAuthorizationFailed.code).stale
    scene.answer(first, error_code=FetchSessionIdNotFound.code)
    scene.now = 200
    first, second = scene.plan()
    assert (first.message["session_id"], first.message["session_epoch"]) == (0, 0)


def test_paused_partitions_are_neither_fetched_nor_handed_out() -> None:
    scene = Scene()
    scene.answer(scene.one(), fetched(batch(0, b"a", b"b")), fetched(batch(0, b"c"), partition_index=1))
    assert scene.values(1) == [b"a"]
    state = scene.positions.get(T0)
    assert state is not None
    state.paused = True
    assert scene.values() == [b"c"]
    assert not scene.buffer.is_ready
    assert 0 not in asked(scene.one())
    state.paused = False
    assert scene.values() == [b"b"], "what was buffered is still there"


def test_nothing_is_fetched_from_the_end_of_a_range_on() -> None:
    scene = Scene()
    scene.positions.remove([T1])
    state = scene.positions.get(T0)
    assert state is not None
    state.until = 3
    scene.answer(scene.one(), fetched(batch(0, b"a", b"b")))
    fetch = scene.one()
    assert asked(fetch) == {0: 2}
    scene.answer(fetch, fetched(batch(2, b"c", b"d")))
    assert scene.values() == [b"a", b"b", b"c", b"d"], "what came with the last fetch"
    assert scene.plan() == []
    state.until = None
    assert asked(scene.one()) == {0: 4}


def test_a_fetch_of_a_range_asks_for_no_more_than_its_rest() -> None:
    def most_bytes(fetch: Fetch) -> int:
        return int(fetch.message["topics"][0]["partitions"][0]["partition_max_bytes"])

    scene = Scene(partition_max_bytes=8 << 20)
    scene.positions.remove([T1])
    state = scene.positions.get(T0)
    assert state is not None
    state.until = 1_000
    fetch = scene.one()
    assert most_bytes(fetch) == SAMPLE_BYTES
    data = batch(0, *[bytes(20_000)] * 10)
    scene.answer(fetch, fetched(data))
    fetch = scene.one()
    assert most_bytes(fetch) == 8 << 20, "the rest is larger than the limit"
    scene.answer(fetch, fetched(batch(10, *[bytes(20_000)] * 900)))
    assert scene.values(10_000)
    rest = 90 * len(data) / 10
    fetch = scene.one()
    assert rest < most_bytes(fetch) < 1.2 * rest + 2 * MARGIN_BYTES
    scene.answer(fetch)
    scene.positions.seek(T0, 995)
    fetch = scene.one()
    scene.answer(fetch, fetched(batch(900, *[bytes(20_000)] * 97)))
    fetch = scene.one()
    assert most_bytes(fetch) < 4 * MARGIN_BYTES, "the fetch began inside of a batch"
    scene.answer(fetch)
    scene.positions.seek(T0, 0)
    state.until = None
    assert most_bytes(scene.one()) == 8 << 20, "without an end"


def test_a_seek_drops_what_was_fetched_and_what_is_under_way() -> None:
    scene = Scene()
    scene.answer(scene.one(), fetched(batch(0, b"a", b"b")))
    assert scene.values(1) == [b"a"]
    fetch = scene.one()
    scene.positions.seek(T0, 7)
    scene.answer(fetch, fetched(batch(2, b"old")))
    assert scene.values() == []
    assert asked(scene.one())[0] == 7


def test_a_batch_may_begin_before_the_position() -> None:
    scene = Scene()
    scene.positions.seek(T0, 2)
    scene.answer(scene.one(), fetched(batch(0, b"a", b"b", b"c", b"d")))
    assert scene.values() == [b"c", b"d"]


def test_sessions_tell_only_what_changed() -> None:
    scene = Scene()
    fetch = scene.one()
    assert (fetch.message["session_id"], fetch.message["session_epoch"]) == (0, 0)
    scene.answer(fetch, fetched(batch(0, b"a")), session_id=77)
    scene.values()
    fetch = scene.one()
    assert (fetch.message["session_id"], fetch.message["session_epoch"]) == (77, 1)
    assert asked(fetch) == {0: 1}, "the other one is known"
    scene.answer(fetch, session_id=77)
    scene.positions.remove([T1])
    fetch = scene.one()
    assert fetch.message["session_epoch"] == 2
    assert fetch.message["topics"] == []
    assert fetch.message["forgotten_topics_data"] == [{"topic": "t", "topic_id": T_ID, "partitions": [1]}]


@pytest.mark.parametrize("failure", ["error", "lost"])
def test_a_lost_session_starts_over(failure: str) -> None:
    scene = Scene()
    scene.answer(scene.one(), session_id=77)
    fetch = scene.one()
    if failure == "error":
        assert scene.answer(fetch, error_code=FetchSessionIdNotFound.code).stale
    else:
        scene.fetcher.failed(fetch, now=0)
        assert scene.plan() == [], "after a pause"
        scene.now = 100
    fetch = scene.one()
    assert (fetch.message["session_id"], fetch.message["session_epoch"]) == (0, 0)
    assert asked(fetch) == {0: 0, 1: 0}


def test_a_stale_leader_is_asked_again_after_a_pause_with_new_metadata() -> None:
    scene = Scene()
    outcome = scene.answer(scene.one(), fetched(error=NotLeaderOrFollower.code), fetched(partition_index=1))
    assert outcome.stale
    assert 0 not in asked(scene.one())
    scene.now = 100
    fetches, leaderless, _ = scene.fetcher.poll(lambda key: None if key == T0 else scene.leaders[key], now=100)
    assert (fetches, leaderless) == ([], True)


def test_an_offset_out_of_range_waits_until_what_is_buffered_is_handed_out() -> None:
    scene = Scene("latest")
    scene.answer(scene.one(), fetched(batch(0, b"a", b"b")))
    assert scene.values(1) == [b"a"]
    scene.answer(scene.one(), fetched(error=OffsetOutOfRange.code))
    assert scene.values() == [b"b"]
    assert scene.positions.to_ask(Need.RESET, now=0) == {}
    assert scene.values() == []
    scene.buffer.settle()
    assert set(scene.positions.to_ask(Need.RESET, now=0)) == {T0}


def test_errors_are_raised_once_they_are_first() -> None:
    scene = Scene()
    scene.answer(scene.one(), fetched(batch(0, b"a")), fetched(error=TopicAuthorizationFailed.code, partition_index=1))
    assert scene.values() == [b"a"]
    with pytest.raises(TopicAuthorizationFailed, match="t-1"):
        scene.values()
    assert set(asked(scene.one())) == {0, 1}, "it may be allowed by now"


def test_damaged_records_are_raised_until_the_user_seeks() -> None:
    scene = Scene(check_crcs=False)
    bad = bytearray(batch(1, b"b"))
    bad[61] = 0x7F
    scene.answer(scene.one(), fetched(batch(0, b"a") + bytes(bad)))
    assert scene.values() == [b"a"]
    for _ in range(2):
        with pytest.raises(CorruptMessage, match=r"t-0 at offset 1.*Seek past it"):
            scene.values()
    scene.positions.seek(T0, 2)
    assert scene.values() == []


@pytest.mark.parametrize("raw", [False, True])
def test_aborted_records_and_markers_move_the_leader_epoch(raw: bool) -> None:
    """Otherwise the next leader would be asked about an older epoch, and its log would look truncated."""
    scene = Scene(read_committed=True)
    scene.answer(scene.one(), fetched(batch(0, b"a"), aborted_transactions=[]))
    assert scene.values() == [b"a"]
    data = transactional(1, 7, b"aborted", leader_epoch=4) + marker(2, 7, commit=False, leader_epoch=5)
    aborted = [SimpleNamespace(producer_id=7, first_offset=1)]
    scene.answer(scene.one(), fetched(data, aborted_transactions=aborted))
    assert (scene.buffer.take_raw() if raw else scene.values()) == []
    state = scene.positions.get(T0)
    assert state is not None
    assert (state.position, state.epoch) == (3, 5)


def test_read_committed_leaves_out_aborted_transactions() -> None:
    scene = Scene(read_committed=True)
    fetch = scene.one()
    assert fetch.message["isolation_level"] == 1
    data = transactional(0, 7, b"aborted") + marker(1, 7, commit=False) + batch(2, b"kept")
    aborted = [SimpleNamespace(producer_id=7, first_offset=0)]
    scene.answer(fetch, fetched(data, aborted_transactions=aborted))
    assert scene.values() == [b"kept"]
    scene.answer(scene.one(), fetched(marker(3, 9, commit=True), aborted_transactions=[]))
    assert scene.values() == []
    state = scene.positions.get(T0)
    assert state is not None
    assert state.position == 4, "a marker at the end moves the position too"


def test_raw_batches_come_from_the_position_on() -> None:
    scene = Scene()
    scene.answer(scene.one(), fetched(batch(0, b"a", b"b") + marker(2, 9, commit=True) + batch(3, b"c")))
    assert scene.values(1) == [b"a"]
    (raw,) = scene.buffer.take_raw()
    assert (raw.topic_partition, raw.position, raw.next_offset) == (T0, 1, 4)
    assert [header.base_offset for _, header in raw.batches] == [0, 3]
    state = scene.positions.get(T0)
    assert state is not None
    assert state.position == 4


def test_while_something_is_buffered_fetches_wait_briefly_and_longer_each_time() -> None:
    scene = Scene()
    for first in (0, 1):
        fetch = scene.one()
        assert fetch.message["max_wait"] == 500
        scene.answer(fetch, fetched(batch(first, b"a")))
    waits = []
    for _ in range(9):
        fetch = scene.one()
        assert asked(fetch) == {1: 0} or fetch.message["topics"] == []
        waits.append(fetch.message["max_wait"])
        scene.answer(fetch)
    assert waits[:4] == [SHORT_WAIT_MS, 2 * SHORT_WAIT_MS, 4 * SHORT_WAIT_MS, 8 * SHORT_WAIT_MS]
    assert waits[-1] == 500


def test_a_follower_that_the_leader_names_is_read_from_until_it_fails() -> None:
    scene = Scene(rack="here")
    fetch = scene.one()
    assert fetch.message["rack_id"] == "here"
    scene.answer(fetch, fetched(preferred_read_replica=5), fetched(partition_index=1))
    by_node = {fetch.node: fetch for fetch in scene.plan()}
    assert set(asked(by_node[5])) == {0}
    scene.answer(by_node[5], fetched(error=OffsetOutOfRange.code))
    scene.answer(by_node[1])
    assert {fetch.node for fetch in scene.plan()} == {1}, "the leader knows better"
    scene.now = 10**9


def test_sessions_are_freed_at_the_end() -> None:
    scene = Scene()
    scene.answer(scene.one(), session_id=77)
    ((node, message),) = scene.fetcher.closing()
    assert (node, message["session_id"], message["session_epoch"]) == (1, 77, -1)
