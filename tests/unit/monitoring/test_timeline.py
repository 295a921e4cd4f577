"""The time of a record from answers of ListOffsets: right within the tolerance, with few questions."""

from __future__ import annotations

from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.monitoring.lag import Lags, Look
from ottla.monitoring.timeline import MAX_TIMESTAMP, Timeline, tolerance_at
from ottla.types import TopicPartition

KEY = TopicPartition("orders", 0)


class Log:
    """A log by offsets and timestamps, which answers as a broker does. Markers take offsets too."""

    def __init__(self, records: dict[int, int], *, start: int = 0, end: int, markers: frozenset[int] = frozenset()):
        self.offsets = sorted(records)
        self.records, self.start, self.end, self.markers = records, start, end, markers

    def ask(self, timestamp: int) -> tuple[int, int]:
        here = [offset for offset in self.offsets if offset >= self.start]
        if timestamp == MAX_TIMESTAMP:
            best = max(here, key=lambda one: self.records[one], default=-1)
            return best, self.records.get(best, -1)
        found = next((one for one in here if self.records[one] >= timestamp), -1)
        return found, self.records.get(found, -1)

    def look(self, position: int) -> tuple[int | None, int]:
        for offset in self.offsets[bisect_left(self.offsets, position) :]:
            if offset >= self.start and offset not in self.markers:
                return offset, self.records[offset]
        return None, -1

    def truth(self, position: int, now: int) -> float:
        offset, timestamp = self.look(max(position, self.start))
        return 0.0 if offset is None else (now - timestamp) / 1000


def measured(
    log: Log, positions: list[int], now: int, *, rounds: int = 60, lags: Lags | None = None
) -> tuple[Lags, int]:
    lags = lags or Lags()
    lags.advance({KEY: (log.start, log.end)}, {KEY: positions}, now=now)
    asked_in_all = 0
    for attempt in range(rounds):
        asked = lags.questions({KEY: positions}, now=now, attempt=attempt)
        if not asked:
            break
        asked_in_all += 1
        lags.answered(KEY, asked[KEY], *log.ask(asked[KEY]), now=now)
    while looks := lags.looks({KEY: positions}, now=now, at_most=100):
        for look in looks:
            lags.looked(look, *log.look(max(look.position, log.start)), now=now)
    return lags, asked_in_all


def close(seconds: float | None, truth: float) -> bool:
    return seconds is not None and abs(seconds - truth) <= max(1.0, 0.05 * truth)


HOUR = 3_600_000


def test_brokers_that_do_not_know_the_largest_timestamp() -> None:
    now = 100 * HOUR
    log = Log({n: n * 10 for n in range(1_000)}, end=1_000)
    lags = Lags()
    lags.max_timestamp = False
    lags, asked = measured(log, [990], now, lags=lags)
    assert close(lags.seconds(KEY, 990, now=now), log.truth(990, now))
    assert asked <= 30


@pytest.mark.parametrize("lag", [0, 1, 100, 5_000, 36_000, 359_999])
def test_a_steady_producer(lag: int) -> None:
    rate, count = 100, 360_000
    now = 10 * HOUR
    log = Log({n: now - HOUR + n * 1000 // rate for n in range(count)}, end=count)
    lags, asked = measured(log, [count - lag], now)
    assert close(lags.seconds(KEY, count - lag, now=now), lag / rate)
    assert asked <= 6


def test_a_topic_that_was_written_long_ago() -> None:
    now = 100 * HOUR
    log = Log({n: n * 10 for n in range(1_000)}, end=1_000)
    lags, asked = measured(log, [990], now)
    assert close(lags.seconds(KEY, 990, now=now), log.truth(990, now))
    assert asked <= 4


def test_an_offset_that_retention_deleted_counts_from_the_first_record_that_is_left() -> None:
    now = 2 * HOUR
    log = Log({n: n * 1000 for n in range(7_000)}, start=5_000, end=7_000)
    lags, _ = measured(log, [100], now)
    assert lags.seconds(KEY, 100, now=now) == pytest.approx((now - 5_000_000) / 1000, abs=1)


def test_a_committed_offset_in_a_gap_left_by_compaction() -> None:
    now = 10 * HOUR
    records = {0: 0, 900: 9 * HOUR} | {n: 9 * HOUR + n for n in range(901, 1_000)}
    log = Log(records, end=1_000)
    lags, _ = measured(log, [500], now)
    assert lags.seconds(KEY, 500, now=now) == 3600.0


def test_many_records_at_one_moment_are_not_a_gap() -> None:
    now = 10 * HOUR
    records = dict.fromkeys(range(1_000), HOUR) | {1_000: 9 * HOUR}
    lags, _ = measured(Log(records, end=1_001), [500], now)
    assert lags.seconds(KEY, 500, now=now) == 9 * 3600.0


def test_only_a_transactions_marker_is_unread() -> None:
    now = 10 * HOUR
    log = Log({0: HOUR, 1: HOUR, 2: HOUR + 5}, end=3, markers=frozenset({2}))
    lags, _ = measured(log, [2], now)
    assert lags.seconds(KEY, 2, now=now) == 0.0


def test_timestamps_that_do_not_increase_are_noticed_and_read_from_the_log() -> None:
    """The markers of a mirrored topic are newer than all records."""
    now = 10 * HOUR
    markers = frozenset(range(100, 10_000, 100))
    log = Log({n: now - 1 if n in markers else n * 10 for n in range(10_000)}, end=10_000, markers=markers)
    positions = [99, 100, 5_000, 9_999]
    lags, _ = measured(log, positions, now)
    assert [lags.seconds(KEY, one, now=now) for one in positions] == [log.truth(one, now) for one in positions]


def test_nothing_is_asked_again_while_nothing_changes() -> None:
    now = 10 * HOUR
    log = Log({n: n * 1000 for n in range(7_000)}, end=7_000)
    lags, first = measured(log, [10, 5_000], now)
    _, again = measured(log, [10, 5_000], now + 15_000, lags=lags)
    assert first > 0
    assert again == 0


def test_answers_are_forgotten_after_a_while_and_after_a_truncation() -> None:
    timeline = Timeline()
    timeline.advance(start=0, end=10, now=1_000)
    timeline.found(0, 0, 500, now=1_000)
    assert timeline.estimate(0, now=1_000).timestamp == 500
    timeline.advance(start=0, end=5, now=2_000)
    assert not timeline.estimate(0, now=2_000).is_known
    timeline.found(0, 0, 500, now=2_000)
    timeline.advance(start=0, end=5, now=2_000 + 400_000)
    assert not timeline.estimate(0, now=402_000).is_known


def test_a_partition_that_nobody_reads_any_more_is_forgotten() -> None:
    lags = Lags()
    lags.advance({KEY: (0, 10)}, {KEY: [5]}, now=1_000)
    assert lags.questions({KEY: [5]}, now=1_000, attempt=0) == {KEY: 0}
    lags.advance({}, {}, now=2_000)
    assert lags.seconds(KEY, 5, now=2_000) is None


def test_one_question_for_each_partition_however_many_groups_read_it() -> None:
    now = HOUR
    log = Log({n: n * 10 for n in range(10_000)}, end=10_000)
    positions = list(range(0, 10_000, 10))
    lags, _ = measured(log, positions, now, rounds=400)
    assert all(close(lags.seconds(KEY, one, now=now), log.truth(one, now)) for one in positions)
    assert len(lags.questions({KEY: positions}, now=now, attempt=0)) <= 1


def test_the_looks_are_limited_and_the_most_doubtful_come_first() -> None:
    now = 10 * HOUR
    log = Log({0: 0, 100: HOUR, 1_000: 9 * HOUR}, end=1_001)
    lags = Lags()
    positions = [50, 500]
    lags.advance({KEY: (0, log.end)}, {KEY: positions}, now=now)
    for attempt in range(60):
        asked = lags.questions({KEY: positions}, now=now, attempt=attempt)
        if asked:
            lags.answered(KEY, asked[KEY], *log.ask(asked[KEY]), now=now)
    assert lags.looks({KEY: positions}, now=now, at_most=1) == [Look(KEY, 500)]


@st.composite
def logs(draw: st.DrawFn) -> Log:
    steps = draw(st.lists(st.sampled_from([0, 1, 10, 1_000, 60_000, HOUR]), min_size=1, max_size=60))
    times = [sum(steps[: n + 1]) for n in range(len(steps))]
    offsets = draw(st.lists(st.integers(0, 300), min_size=len(times), max_size=len(times), unique=True))
    records = dict(zip(sorted(offsets), times, strict=True))
    start = draw(st.integers(0, max(offsets)))
    return Log(records, start=start, end=max(offsets) + 1 + draw(st.integers(0, 2)))


@given(log=logs(), positions=st.lists(st.integers(0, 303), min_size=1, max_size=5), later=st.integers(0, 10 * HOUR))
def test_any_log(log: Log, positions: list[int], later: int) -> None:
    now = max(log.records.values()) + 1 + later
    lags, _ = measured(log, positions, now, rounds=400)
    for one in positions:
        truth = log.truth(one, now) if one < log.end else 0.0
        seconds = lags.seconds(KEY, one, now=now)
        assert seconds is not None
        allowed = max(1.0, 0.05 * truth, 0.05 * seconds) + tolerance_at(None, now=now) / 1000
        assert abs(seconds - truth) <= allowed, (one, seconds, truth)


class Steady:
    """A producer of a known rate, asked without a list of its records."""

    def __init__(self, rate: int) -> None:
        self.rate = rate

    def end(self, now: int) -> int:
        return now * self.rate // 1000

    def ask(self, timestamp: int, now: int) -> tuple[int, int]:
        offset = self.end(now) - 1 if timestamp == MAX_TIMESTAMP else -(-timestamp * self.rate // 1000)
        return (offset, offset * 1000 // self.rate) if offset < self.end(now) else (-1, -1)


@pytest.mark.parametrize("rate", [1, 40, 1_000])
@pytest.mark.parametrize("lag_seconds", [2, 45, 3_000])
def test_polls_of_a_live_group_with_few_rounds_each(rate: int, lag_seconds: int) -> None:
    log, lags, asked_in_all = Steady(rate), Lags(), 0
    polls = range(10 * HOUR, 10 * HOUR + 600_000, 15_000)
    for now in polls:
        position = log.end(now) - lag_seconds * rate
        lags.advance({KEY: (0, log.end(now))}, {KEY: [position]}, now=now)
        for attempt in range(4):
            asked = lags.questions({KEY: [position]}, now=now, attempt=attempt)
            if asked:
                asked_in_all += 1
                lags.answered(KEY, asked[KEY], *log.ask(asked[KEY], now), now=now)
        if now > polls[0] + 15_000:
            assert close(lags.seconds(KEY, position, now=now), lag_seconds)
    assert asked_in_all <= 2.5 * len(polls)
