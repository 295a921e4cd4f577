"""From polls to metrics and events, in virtual time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.monitoring.alarms import Event
from ottla.monitoring.lag import Lags
from ottla.monitoring.watch import Limits, Observation, Watch
from ottla.types import TopicPartition

ORDERS = TopicPartition("orders", 0)
DEAD = TopicPartition("orders.dead", 0)
HOUR = 3_600_000


class Scene:
    """A partition with a record each second, whose oldest are deleted after an hour, and a group."""

    def __init__(self, **limits: float) -> None:
        self.watch = Watch(Limits(**limits))
        self.lags = Lags()

    def poll(self, now: int, position: int | None, *, kept: int = HOUR, **more: object) -> list[Event]:
        start, end = max((now - kept) // 1000, 0), now // 1000
        committed = {} if position is None else {"billing": {ORDERS: position}}
        if position is not None:
            self.lags.advance({ORDERS: (start, end)}, {ORDERS: [position]}, now=now)
            first = max(position, start)
            if first < end:
                self.lags.answered(ORDERS, 0, first, first * 1000, now=now)
        seen = Observation(now, committed, {ORDERS: (start, end)}, retention={"orders": HOUR}, **more)  # type: ignore[arg-type]
        return self.watch.observe(seen, self.lags)

    @property
    def row(self):  # type: ignore[no-untyped-def]
        return self.watch.rows["billing", ORDERS]


def test_lag_and_the_share_of_retention() -> None:
    scene = Scene()
    scene.poll(HOUR, 1_800)
    assert (scene.row.lag, scene.row.seconds, scene.row.retention_share) == (1_800, 1_800.0, 0.5)
    scene.poll(HOUR, 3_600)
    assert (scene.row.lag, scene.row.seconds, scene.row.retention_share) == (0, 0.0, 0.0)


def test_lost_records_are_counted_once() -> None:
    scene = Scene()
    scene.poll(2 * HOUR, 3_500)
    assert (scene.row.lost, scene.row.retention_share) == (100, 1.0)
    scene.poll(2 * HOUR, 3_500)
    assert scene.row.lost == 100
    scene.poll(2 * HOUR + 30_000, 3_500)
    assert scene.row.lost == 130
    scene.poll(2 * HOUR + 60_000, 7_000)
    assert (scene.row.lost, scene.row.lag) == (130, 260)


def test_an_offset_that_is_set_back_is_a_new_start() -> None:
    scene = Scene()
    scene.poll(2 * HOUR, 7_000)
    scene.poll(2 * HOUR, 3_000)
    assert scene.row.lost == 600


def test_the_time_without_consumption() -> None:
    scene = Scene()
    scene.poll(HOUR, 100)
    scene.poll(HOUR + 60_000, 100)
    assert scene.row.stalled_seconds(now=HOUR + 61_000) == 61
    scene.poll(HOUR + 90_000, 101)
    assert scene.row.stalled_seconds(now=HOUR + 90_000) == 0
    scene.poll(HOUR + 90_000, 3_690)
    scene.poll(HOUR + 90_500, 3_690)
    assert scene.row.stalled_seconds(now=HOUR + 90_500) == 0, "there was nothing to read"


def test_a_lag_above_its_limit_is_told_and_when_it_is_clearly_over() -> None:
    scene = Scene(lag_seconds=300)
    told = []
    for position in (3_400, 3_300, 3_299, 3_301, 3_299, 3_320, 3_361, 3_360):
        told += [(event.status, event.details["lag_seconds"]) for event in scene.poll(HOUR, position)]
    assert told == [("began", 301.0), ("over", 239.0)]


def test_a_lag_in_records_and_a_group_that_is_deleted() -> None:
    scene = Scene(lag_records=1_000)
    (event,) = scene.poll(HOUR, 2_599)
    assert event.details["worst"] == {"topic": "orders", "partition": 0, "committed": 2_599}
    (event,) = scene.poll(HOUR, None)
    assert (event.status, event.details) == ("over", {"gone": True})


def test_dead_letters_are_those_that_came_since_the_first_poll() -> None:
    scene = Scene()
    assert scene.poll(HOUR, None, dead_letters={DEAD: 10}) == []
    (event,) = scene.poll(HOUR, None, dead_letters={DEAD: 13})
    assert (event.subject.kind, event.count, event.details) == ("dead_letters", 3, {"topic": "orders.dead"})
    assert scene.poll(HOUR + 1, None, dead_letters={DEAD: 20}) == []
    (event,) = scene.poll(HOUR + 60_000, None, dead_letters={DEAD: 20})
    assert event.count == 7


def test_a_topic_with_many_offline_partitions_is_one_event() -> None:
    scene = Scene()
    offline = frozenset(TopicPartition("t", number) for number in range(500))
    (event,) = scene.poll(HOUR, None, offline=offline)
    assert (event.details["count"], len(event.details["partitions"])) == (500, 20)
    assert scene.poll(HOUR, None, offline=offline) == []
    (event,) = scene.poll(HOUR, None)
    assert event.status == "over"


def test_rebalances_by_cause() -> None:
    watch = Watch(Limits())
    (event,) = watch.rebalanced("billing", ("member joined", "member joined", "session expired"), {}, now=0)
    assert event.subject.kind == "rebalance"
    assert watch.rebalanced("billing", ("member joined",), {}, now=1) == []
    assert watch.rebalances == {("billing", "member joined"): 2, ("billing", "session expired"): 1}


@given(st.lists(st.tuples(st.integers(0, 600_000), st.integers(0, 400)), min_size=1, max_size=40))
def test_lost_records_are_those_that_were_deleted_before_the_position_passed_them(moves: list[tuple[int, int]]) -> None:
    scene, now, position, lost, seen = Scene(), 0, 0, 0, 0
    for gap, read in moves:
        now += gap
        start, end = max((now - HOUR) // 1000, 0), now // 1000
        lost += max(start - max(position, seen), 0)
        seen = max(seen, start, position)
        scene.poll(now, position)
        assert scene.row.lost == lost
        position = min(max(position, start) + read, end)


@pytest.mark.parametrize("position", [0, 5_000])
def test_a_topic_without_retention_has_no_share(position: int) -> None:
    scene = Scene()
    scene.poll(HOUR, position)
    seen = Observation(HOUR, {"billing": {ORDERS: position}}, {ORDERS: (0, 3_600)})
    scene.watch.observe(seen, scene.lags)
    assert scene.row.retention_share is None
