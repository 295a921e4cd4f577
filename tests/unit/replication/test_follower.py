"""A follower of a partition: where it fetches, and what it does to its log."""

from __future__ import annotations

import pytest

from ottla import errors
from ottla.metadata.values import PartitionState
from ottla.replication.follower import Follower
from ottla.replication.values import Append, EpochEnd, Ignore, Restart, Stop, Truncate, Wait
from unit.replication.cluster_material import Entry, MemoryLog, Response, new_leader, perform, sync_once

STATE = PartitionState((1, 2, 3), (1, 2), 1, leader_epoch=5)


def new_follower(log: MemoryLog, high_watermark: int = 0) -> Follower:
    return Follower(state=STATE, log=log, high_watermark=high_watermark)


def test_it_fetches_from_the_end_of_its_log_and_tells_its_newest_epoch() -> None:
    follower = new_follower(MemoryLog(1, 1, 4), high_watermark=1)
    assert (follower.leader, follower.leader_epoch) == (1, 5)
    assert (follower.fetch_offset, follower.last_fetched_epoch, follower.high_watermark) == (3, 4, 1)
    assert new_follower(MemoryLog()).last_fetched_epoch == -1


def test_it_takes_records_high_watermark_and_start_of_the_leader() -> None:
    log = MemoryLog(4)
    follower = new_follower(log)
    step = follower.response(1, Response(0, 2, 1, records=memoryview(b"records")))
    assert isinstance(step, Append)
    assert bytes(step.records) == b"records"
    log.append(Entry(5, "a"), Entry(5, "b"))
    assert follower.appended(step)
    assert (follower.high_watermark, follower.start_offset) == (2, 1)


def test_an_empty_response_raises_the_high_watermark() -> None:
    log = MemoryLog(4, 4)
    follower = new_follower(log)
    step = follower.response(2, Response(0, 2, 0))
    assert step == Append(memoryview(b""), 2, 0)
    assert follower.appended(step)
    assert not follower.appended(step)
    assert follower.high_watermark == 2


def test_the_high_watermark_is_limited_by_its_own_log_and_does_not_fall_with_a_new_leader() -> None:
    log = MemoryLog(4, 4)
    follower = new_follower(log, high_watermark=1)
    follower.appended(Append(memoryview(b""), 9, 0))
    assert follower.high_watermark == 2
    follower.appended(Append(memoryview(b""), 1, 0))
    assert follower.high_watermark == 2


def test_it_never_starts_above_what_is_committed() -> None:
    follower = new_follower(MemoryLog(4, 4, 4), high_watermark=1)
    follower.appended(Append(memoryview(b""), 2, 3))
    assert follower.start_offset == 2


@pytest.mark.parametrize("given", [-1, 0, 6, 99])
def test_a_checkpointed_high_watermark_is_kept_within_the_log(given: int) -> None:
    assert new_follower(MemoryLog(4, 4, start=5), given).high_watermark == min(max(given, 5), 7)


def test_kafka_8333_a_high_watermark_above_a_damaged_log_commits_nothing_new() -> None:
    """The checkpoint says 5, but a crash of the machine left 2 records. What comes then is not committed by that."""
    log = MemoryLog(4, 4)
    follower = new_follower(log, high_watermark=5)
    step = follower.response(2, Response(0, 3, 0, records=memoryview(b"x")))
    assert isinstance(step, Append)
    log.append(Entry(5, "a"), Entry(5, "b"))
    follower.appended(step)
    assert follower.high_watermark == 3


@pytest.mark.parametrize(
    ("own", "diverging", "expected"),
    [
        pytest.param([1, 1, 1, 1], EpochEnd(1, 2), 2, id="C: ahead in the same epoch"),
        pytest.param([1, 1, 2], EpochEnd(1, 2), 2, id="D: an epoch that the leader does not have"),
        pytest.param([1, 2, 2], EpochEnd(1, 2), 1, id="F: left an epoch earlier"),
        pytest.param([2, 2], EpochEnd(1, 1), 0, id="G: nothing in common"),
        pytest.param([1, 3, 3], EpochEnd(2, 2), 1, id="the leader's epoch is unknown here: cut to the one before"),
    ],
)
def test_a_diverging_log_is_truncated(own: list[int], diverging: EpochEnd, expected: int) -> None:
    log = MemoryLog(*own)
    follower = new_follower(log)
    assert follower.response(len(own), Response(0, 9, 0, diverging)) == Truncate(expected)


def test_kip_101_records_above_the_high_watermark_are_kept_if_the_leader_has_them() -> None:
    source, log = MemoryLog(4, 4, 4), MemoryLog(4, 4, 4)
    leader, follower = new_leader(source), new_follower(log, high_watermark=1)
    assert isinstance(sync_once(leader, source, follower, log, replica=2, now=0), Append)
    assert log.entries == source.entries


def test_kip_279_truncation_is_repeated_until_the_logs_agree() -> None:
    """Fast failovers: each replica has epochs that the other does not have."""
    source, log = MemoryLog(1, 1, 3, 3, 5), MemoryLog(1, 1, 2, 2, 4, 4)
    leader, follower = (
        new_leader(source, epoch=6),
        Follower(state=PartitionState((1, 2), (1,), 1, leader_epoch=6), log=log, high_watermark=0),
    )
    steps = [sync_once(leader, source, follower, log, replica=2, now=0) for _ in range(4)]
    assert [step for step in steps if isinstance(step, Truncate)] == [Truncate(4), Truncate(2)]
    assert log.entries == source.entries


def test_kafka_6361_a_fast_failover_leaves_no_records_of_the_epoch_in_between() -> None:
    """Broker 2 led epoch 2 for a moment and wrote a record. The leader of epoch 3 has another one at that offset."""
    source, log = MemoryLog(1, 3), MemoryLog(1, 2)
    leader, follower = new_leader(source), new_follower(log)
    assert sync_once(leader, source, follower, log, replica=2, now=0) == Truncate(1)
    sync_once(leader, source, follower, log, replica=2, now=0)
    assert log.entries == source.entries


def test_kafka_7164_each_new_epoch_of_the_same_leader_checks_the_log_again() -> None:
    """The leader was replaced and elected again in between, and lost a record that this follower has."""
    source, log = MemoryLog(4, 4), MemoryLog(4, 4)
    leader, follower = new_leader(source), new_follower(log)
    sync_once(leader, source, follower, log, replica=2, now=0)
    source.append(Entry(5, "lost"))
    sync_once(leader, source, follower, log, replica=2, now=0)
    source.truncate_to(2)
    source.append(Entry(6, "of another leader"))
    leader = new_leader(source, epoch=7)
    follower = Follower(state=PartitionState((1, 2), (1, 2), 1, leader_epoch=7), log=log, high_watermark=2)
    assert sync_once(leader, source, follower, log, replica=2, now=0) == Truncate(2)
    sync_once(leader, source, follower, log, replica=2, now=0)
    assert log.entries == source.entries


def test_kafka_10706_an_epoch_without_records_at_the_end_of_the_log_is_forgotten() -> None:
    """It led epoch 4 and wrote nothing. With that epoch left it would be told to truncate for ever."""
    source, log = MemoryLog(3, 3), MemoryLog(3, 3)
    log.begin_epoch(4)
    leader, follower = new_leader(source), new_follower(log)
    assert sync_once(leader, source, follower, log, replica=2, now=0) == Truncate(2)
    assert isinstance(sync_once(leader, source, follower, log, replica=2, now=0), Append)


def test_kafka_14704_it_truncates_before_it_raises_the_high_watermark() -> None:
    log = MemoryLog(1, 1, 2)
    follower = new_follower(log, high_watermark=1)
    step = follower.response(3, Response(0, 3, 0, EpochEnd(1, 2)))
    assert step == Truncate(2)
    assert follower.high_watermark == 1
    perform(follower, log, step)
    assert follower.high_watermark == 1


def test_kafka_9491_the_high_watermark_falls_with_a_truncation_below_it() -> None:
    """After an unclean election. The records that come then at those offsets are not committed yet."""
    log = MemoryLog(1, 1, 1)
    follower = new_follower(log, high_watermark=3)
    perform(follower, log, follower.response(3, Response(0, 1, 0, EpochEnd(1, 1))))
    log.append(Entry(5, "a"), Entry(5, "b"))
    assert follower.high_watermark == 1


def test_a_truncation_below_its_start_empties_the_log() -> None:
    log = MemoryLog(3, 3, start=10)
    follower = new_follower(log, high_watermark=12)
    step = follower.response(12, Response(0, 1, 0, EpochEnd(2, 4)))
    assert step == Restart(4)
    perform(follower, log, step)
    assert (follower.fetch_offset, follower.high_watermark, follower.last_fetched_epoch) == (4, 4, -1)


def test_kafka_7414_a_follower_with_an_offset_out_of_range_recovers() -> None:
    """The leader has deleted what comes after the end of this log."""
    source, log = MemoryLog(4, 4, start=10), MemoryLog(3, 3)
    leader, follower = new_leader(source, high_watermark=12), new_follower(log, high_watermark=2)
    assert sync_once(leader, source, follower, log, replica=2, now=0) == Restart(10)
    assert (follower.high_watermark, follower.start_offset) == (10, 10)
    sync_once(leader, source, follower, log, replica=2, now=0)
    assert (log.entries, log.log_start_offset) == (source.entries, 10)


def test_an_empty_log_that_starts_after_the_leaders_end_starts_again() -> None:
    source, log = MemoryLog(4, 4), MemoryLog(start=10)
    leader, follower = new_leader(source), new_follower(log, high_watermark=10)
    assert sync_once(leader, source, follower, log, replica=2, now=0) == Restart(0)
    sync_once(leader, source, follower, log, replica=2, now=0)
    assert log.entries == source.entries


def test_it_waits_if_an_out_of_range_answer_does_not_tell_where_the_leader_starts() -> None:
    code = errors.OffsetOutOfRange.code
    assert new_follower(MemoryLog(4)).response(1, Response(code)) == Wait(code)


@pytest.mark.parametrize(
    "error",
    [
        errors.UnknownLeaderEpoch,
        errors.NotLeaderOrFollower,
        errors.UnknownTopicOrPartition,
        errors.UnknownTopicId,
        errors.KafkaStorageError,
        errors.CorruptMessage,
    ],
)
def test_it_tries_again_after_errors_that_pass(error: type[errors.KafkaError]) -> None:
    assert new_follower(MemoryLog(4)).response(1, Response(error.code)) == Wait(error.code)


def test_kip_320_a_fenced_follower_stops_until_the_image_has_the_new_epoch() -> None:
    assert new_follower(MemoryLog(4)).response(1, Response(errors.FencedLeaderEpoch.code)) == Stop()


@pytest.mark.parametrize("response", [Response(0, 9, 0), Response(0, 9, 0, EpochEnd(1, 1)), Response(1, -1, 0)])
def test_a_response_to_a_fetch_from_another_offset_is_ignored(response: Response) -> None:
    follower = new_follower(MemoryLog(4, 4), high_watermark=1)
    assert follower.response(1, response) == Ignore()
    assert follower.high_watermark == 1


@pytest.mark.parametrize("late", [Response(0, 9, 0, EpochEnd(1, 0)), Response(errors.OffsetOutOfRange.code, -1, 0)])
def test_a_late_answer_does_not_cut_what_was_appended_since(late: Response) -> None:
    """The leader counts it already. Within one epoch a log that agreed once agrees for ever."""
    source, log = MemoryLog(4, 4, 5), MemoryLog(4, 4)
    leader, follower = new_leader(source), new_follower(log)
    sync_once(leader, source, follower, log, replica=2, now=0)
    assert follower.response(3, late) == Wait(late.error_code)


def test_it_starts_again_if_the_leader_has_deleted_all_that_it_has() -> None:
    source, log = MemoryLog(4, 4), MemoryLog(4)
    leader, follower = new_leader(source), new_follower(log)
    sync_once(leader, source, follower, log, replica=2, now=0)
    assert follower.response(2, Response(errors.OffsetOutOfRange.code, -1, 2)) == Restart(2)


def test_the_leader_may_delete_what_a_slow_follower_needs_next() -> None:
    source, log = MemoryLog(4, 4, 4), MemoryLog(4)
    leader, follower = new_leader(source), new_follower(log)
    perform(follower, log, Append(memoryview(b""), 1, 0))
    source.log_start_offset = 2
    assert sync_once(leader, source, follower, log, replica=2, now=0) == Restart(2)
