"""The leader of a partition: who counts for the high watermark, and who is in the ISR."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla import errors
from ottla.replication.leader import RETRY_MS, divergence
from ottla.replication.values import EpochEnd, Member
from unit.replication.cluster_material import (
    LAG,
    Entry,
    MemoryLog,
    active_brokers,
    changed,
    fetch_of,
    new_leader,
)

# ── the high watermark ──────────────────────────────────────────────────────────────────────────────────────


def test_the_high_watermark_is_what_all_in_sync_replicas_have() -> None:
    log = MemoryLog(4, 4, 4)
    leader = new_leader(log)
    assert not leader.fetched(fetch_of(2, 3, leader=leader), now=0).has_raised_high_watermark
    assert leader.fetched(fetch_of(3, 2, leader=leader), now=0).has_raised_high_watermark
    assert leader.high_watermark == 2
    log.append(Entry(5, "x"))
    assert not leader.appended(now=0)
    leader.fetched(fetch_of(2, 4, leader=leader), now=0)
    leader.fetched(fetch_of(3, 4, leader=leader), now=0)
    assert leader.high_watermark == 4


def test_a_single_replica_commits_what_it_writes() -> None:
    log = MemoryLog(4)
    leader = new_leader(log, replicas=(1,), isr=(1,), min_isr=2)
    assert leader.high_watermark == 1
    assert not leader.is_below_min_isr
    log.append(Entry(5, "x"))
    assert leader.appended(now=0)
    assert leader.high_watermark == 2


def test_a_single_replica_that_gets_company_commits_alone_until_the_others_have_caught_up() -> None:
    log = MemoryLog(4)
    leader = new_leader(log, replicas=(1,), isr=(1,), min_isr=2)
    leader.state_changed(replace(leader.state, replicas=(1, 2, 3), adding=(2, 3), partition_epoch=9), now=0)
    log.append(Entry(5, "x"))
    assert leader.appended(now=0)
    assert not leader.is_below_min_isr


def test_the_high_watermark_of_a_new_leader_waits_for_fetches_of_its_epoch() -> None:
    leader = new_leader(MemoryLog(4, 4, 4), high_watermark=1)
    assert leader.high_watermark == 1
    assert not leader.knows_high_watermark
    leader.fetched(fetch_of(2, 3, leader=leader), now=0)
    assert leader.high_watermark == 1
    leader.fetched(fetch_of(3, 3, leader=leader), now=0)
    assert leader.high_watermark == 3
    assert leader.knows_high_watermark


def test_the_high_watermark_never_falls() -> None:
    log = MemoryLog(4, 4, 4)
    leader = new_leader(log)
    for replica in (2, 3):
        leader.fetched(fetch_of(replica, 3, leader=leader), now=0)
    assert leader.high_watermark == 3
    leader.fetched(fetch_of(2, 1, leader=leader), now=0)  # It was cut by an unclean stop.
    assert leader.high_watermark == 3


@pytest.mark.parametrize("given", [-1, 0, 7, 100])
def test_a_checkpointed_high_watermark_is_kept_within_the_log(given: int) -> None:
    log = MemoryLog(4, 4, 4, start=5)
    leader = new_leader(log, high_watermark=given)
    assert leader.high_watermark == min(max(given, 5), 8)


def test_kafka_15583_the_high_watermark_stands_still_below_min_isr() -> None:
    log = MemoryLog(4, 4)
    leader = new_leader(log, isr=(1,), min_isr=2)
    assert leader.is_below_min_isr
    log.append(Entry(5, "x"))
    assert not leader.appended(now=0)
    assert leader.high_watermark == 0
    leader.fetched(fetch_of(2, 3, leader=leader), now=0)
    assert leader.high_watermark == 0  # Two replicas have it, but the ISR is committed only by the controller.
    proposal = leader.proposal(now=0)
    assert proposal is not None
    assert leader.high_watermark == 0
    assert leader.state_changed(changed(leader, 1, 2), now=0)
    assert leader.high_watermark == 3
    assert not leader.is_below_min_isr


def test_a_partition_that_grows_stays_writable() -> None:
    """As for the controller, the replicas that a reassignment adds do not count for the minimum."""
    log = MemoryLog(4)
    leader = new_leader(log, replicas=(1,), isr=(1,), min_isr=2)
    leader.state_changed(replace(changed(leader, 1), replicas=(1, 2, 3), adding=(2, 3)), now=0)
    assert not leader.is_below_min_isr
    log.append(Entry(5, "x"))
    assert leader.appended(now=0)


def test_kip_966_the_last_replica_standing_commits_nothing_with_min_isr_2() -> None:
    log = MemoryLog(4)
    leader = new_leader(log, min_isr=2)
    for replica in (2, 3):
        leader.fetched(fetch_of(replica, 1, leader=leader), now=0)
    leader.state_changed(changed(leader, 1), now=1)
    log.append(Entry(5, "x"))
    assert not leader.appended(now=2)
    assert leader.high_watermark == 1


def test_a_lower_min_isr_lets_the_high_watermark_rise() -> None:
    leader = new_leader(MemoryLog(4, 4), isr=(1,), min_isr=2)
    assert leader.settings_changed(min_isr=1, max_lag_ms=LAG, now=0)
    assert leader.high_watermark == 2


def test_the_high_watermark_waits_for_a_follower_that_is_about_to_join() -> None:
    """Otherwise a follower of a busy leader would be behind the high watermark for ever."""
    log = MemoryLog(4, 4)
    leader = new_leader(log, isr=(1,))
    leader.fetched(fetch_of(2, 2, leader=leader), now=0)
    log.append(Entry(5, "x"))
    leader.appended(now=1)
    assert leader.high_watermark == 2
    proposal = leader.proposal(now=1)
    assert proposal is not None
    assert [member.broker_id for member in proposal.isr] == [1, 2]


@pytest.mark.parametrize("why", ["fenced", "shutting down", "restarted", "gone", "disk failed", "too slow"])
def test_the_high_watermark_does_not_wait_for_a_follower_that_cannot_join(why: str) -> None:
    log, brokers, now = MemoryLog(4, 4), active_brokers(1, 2, 3), 1
    leader = new_leader(log, isr=(1,), brokers=brokers)
    leader.fetched(fetch_of(2, 2, leader=leader), now=0)
    if why == "fenced":
        brokers[2] = replace(brokers[2], is_fenced=True)
    elif why == "shutting down":
        brokers[2] = replace(brokers[2], is_shutting_down=True)
    elif why == "restarted":
        brokers[2] = replace(brokers[2], epoch=900)
    elif why == "gone":
        del brokers[2]
    elif why == "disk failed":
        leader.state_changed(replace(changed(leader, 1), offline=(2,)), now=1)
    else:
        now = LAG + 1
    log.append(Entry(5, "x"))
    leader.appended(now=now)
    assert leader.high_watermark == 3
    assert why == "too slow" or leader.proposal(now=now) is None


def test_the_high_watermark_goes_on_when_the_follower_it_waits_for_is_fenced() -> None:
    log, brokers = MemoryLog(4, 4), active_brokers(1, 2, 3)
    leader = new_leader(log, isr=(1,), brokers=brokers)
    leader.fetched(fetch_of(2, 2, leader=leader), now=0)
    log.append(Entry(5, "x"))
    assert not leader.appended(now=1)
    brokers[2] = replace(brokers[2], is_fenced=True)
    assert leader.advance(now=2)
    assert leader.high_watermark == 3


def test_deletion_is_complete_where_all_living_replicas_start() -> None:
    log, brokers = MemoryLog(4, 4, 4), active_brokers(1, 2, 3)
    log.log_start_offset = 2
    leader = new_leader(log, brokers=brokers)
    assert leader.low_watermark == -1
    leader.fetched(fetch_of(2, 3, leader=leader)._replace(log_start_offset=2), now=0)
    brokers[3] = replace(brokers[3], is_fenced=True)
    assert leader.low_watermark == 2


# ── joining the ISR ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_follower_joins_when_it_has_reached_the_high_watermark() -> None:
    log = MemoryLog(4, 4, 4)
    leader = new_leader(log, isr=(1, 2), high_watermark=3)
    assert leader.proposal(now=0) is None
    leader.fetched(fetch_of(3, 2, leader=leader), now=0)
    assert leader.proposal(now=0) is None
    leader.fetched(fetch_of(3, 3, leader=leader), now=0)
    proposal = leader.proposal(now=0)
    assert proposal is not None
    assert proposal.isr == (Member(1, 101), Member(2, -1), Member(3, 103))
    assert (proposal.leader_epoch, proposal.partition_epoch) == (5, 10)


def test_kafka_7128_a_follower_joins_only_with_all_records_before_this_epoch() -> None:
    """The high watermark of a new leader may be too low: records above it may be committed."""
    log = MemoryLog(4, 4, 4)
    leader = new_leader(log, isr=(1, 2), high_watermark=1)
    leader.fetched(fetch_of(3, 2, leader=leader), now=0)
    assert leader.proposal(now=0) is None
    leader.fetched(fetch_of(3, 3, leader=leader), now=0)
    assert leader.proposal(now=0) is not None


@pytest.mark.parametrize("trouble", [{"is_fenced": True}, {"is_shutting_down": True}, {"epoch": 900}])
def test_kafka_13916_kip_841_kip_903_only_an_active_broker_in_its_current_epoch_joins(
    trouble: dict[str, object],
) -> None:
    brokers = active_brokers(1, 2, 3)
    leader = new_leader(MemoryLog(4), isr=(1, 2), brokers=brokers)
    leader.fetched(fetch_of(3, 1, leader=leader), now=0)
    brokers[3] = replace(brokers[3], **trouble)  # type: ignore[arg-type]
    assert leader.proposal(now=0) is None


def test_kafka_14140_a_broker_that_the_image_does_not_know_does_not_join() -> None:
    leader = new_leader(MemoryLog(4), isr=(1, 2), brokers=active_brokers(1, 2))
    leader.fetched(fetch_of(3, 1, leader=leader), now=0)
    assert leader.proposal(now=0) is None


def test_a_follower_that_is_newer_than_the_image_joins_when_the_image_has_it() -> None:
    brokers = active_brokers(1, 2, 3)
    leader = new_leader(MemoryLog(4), isr=(1, 2), brokers=brokers)
    leader.fetched(fetch_of(3, 1, leader=leader, broker_epoch=900), now=0)
    assert leader.proposal(now=0) is None
    brokers[3] = replace(brokers[3], epoch=900)
    proposal = leader.proposal(now=0)
    assert proposal is not None
    assert proposal.isr[-1] == Member(3, 900)


def test_a_follower_that_may_have_been_removed_in_between_must_fetch_again() -> None:
    """Removed and added again, it starts with an empty log. The leader saw neither."""
    leader = new_leader(MemoryLog(4), isr=(1, 2))
    leader.fetched(fetch_of(3, 1, leader=leader), now=0)
    leader.state_changed(changed(leader, 1, 2, steps=2), now=0)
    assert leader.proposal(now=0) is None
    leader.fetched(fetch_of(3, 1, leader=leader), now=0)
    assert leader.proposal(now=0) is not None


# ── leaving the ISR ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_follower_that_stops_fetching_leaves_after_the_lag() -> None:
    log = MemoryLog(4)
    leader = new_leader(log, now=1000)
    leader.fetched(fetch_of(2, 1, leader=leader), now=1000)
    assert leader.proposal(now=1000 + LAG) is None
    proposal = leader.proposal(now=1001 + LAG)
    assert proposal is not None
    assert [member.broker_id for member in proposal.isr] == [1, 2]


def test_a_follower_with_all_records_stays_however_long_it_does_not_fetch() -> None:
    leader = new_leader(MemoryLog(4))
    for replica in (2, 3):
        leader.fetched(fetch_of(replica, 1, leader=leader), now=0)
    assert leader.proposal(now=100 * LAG) is None


def test_a_follower_that_is_always_a_little_behind_stays() -> None:
    log = MemoryLog(4)
    leader = new_leader(log, replicas=(1, 2), isr=(1, 2))
    end_before = 1
    for now in range(0, 10 * LAG, LAG // 2):
        leader.fetched(fetch_of(2, end_before, leader=leader), now=now)
        end_before = log.log_end_offset
        log.append(Entry(5, now))
        leader.appended(now=now)
        assert leader.proposal(now=now) is None


def test_a_follower_that_fetches_but_falls_behind_leaves() -> None:
    log = MemoryLog(4, 4)
    leader = new_leader(log, replicas=(1, 2), isr=(1, 2))
    for offset, now in enumerate(range(0, LAG + 1, 1000)):
        leader.fetched(fetch_of(2, offset, leader=leader), now=now)
        log.append(*[Entry(5, now)] * 3)
    assert leader.proposal(now=LAG + 1) is not None


def test_kafka_9672_an_isr_member_that_is_no_replica_leaves() -> None:
    leader = new_leader(MemoryLog(4), replicas=(1, 2), isr=(1, 2, 9))
    leader.fetched(fetch_of(2, 1, leader=leader), now=0)
    assert leader.high_watermark == 0
    with pytest.raises(errors.UnknownLeaderEpoch):
        leader.fetched(fetch_of(9, 1, leader=leader), now=0)
    proposal = leader.proposal(now=LAG + 1)
    assert proposal is not None
    assert [member.broker_id for member in proposal.isr] == [1, 2]
    assert leader.state_changed(changed(leader, 1, 2), now=LAG + 1)
    assert leader.high_watermark == 1


def test_one_proposal_can_remove_and_add() -> None:
    log = MemoryLog(4)
    leader = new_leader(log, isr=(1, 2))
    leader.fetched(fetch_of(3, 1, leader=leader), now=LAG)
    proposal = leader.proposal(now=LAG + 1)
    assert proposal is not None
    assert [member.broker_id for member in proposal.isr] == [1, 3]
    assert leader.maximal_isr == {1, 2, 3}


# ── proposals and their answers ─────────────────────────────────────────────────────────────────────────────


def test_there_is_one_proposal_at_a_time() -> None:
    leader = new_leader(MemoryLog(4), isr=(1,))
    leader.fetched(fetch_of(2, 1, leader=leader), now=0)
    first = leader.proposal(now=0)
    assert first is not None
    leader.fetched(fetch_of(3, 1, leader=leader), now=0)
    assert leader.proposal(now=10 * LAG) is None
    leader.state_changed(changed(leader, 1, 2), now=0)
    second = leader.proposal(now=0)
    assert second is not None
    assert [member.broker_id for member in second.isr] == [1, 2, 3]
    assert second.partition_epoch == 11


def test_kafka_12686_a_proposed_member_counts_until_its_fate_is_known() -> None:
    log = MemoryLog(4)
    leader = new_leader(log, isr=(1, 2))
    for replica in (2, 3):
        leader.fetched(fetch_of(replica, 1, leader=leader), now=0)
    proposal = leader.proposal(now=0)
    assert proposal is not None
    log.append(Entry(5, "x"))
    leader.fetched(fetch_of(2, 2, leader=leader), now=0)
    assert leader.high_watermark == 1
    for error in (errors.RequestTimedOut(), errors.NotController(), errors.UnknownServerError()):
        assert not leader.proposal_failed(proposal, error, now=0)
        assert leader.high_watermark == 1
        assert leader.proposal(now=RETRY_MS - 1) is None
        assert leader.proposal(now=RETRY_MS) is proposal
    leader.fetched(fetch_of(3, 2, leader=leader), now=0)
    assert leader.high_watermark == 2


@pytest.mark.parametrize(
    "error",
    [errors.FencedLeaderEpoch, errors.InvalidUpdateVersion, errors.NewLeaderElected, errors.UnknownTopicId],
)
def test_kafka_13091_after_a_conflict_the_image_decides(error: type[errors.KafkaError]) -> None:
    """The proposal may have been committed although an answer was lost, so its members count."""
    log = MemoryLog(4)
    leader = new_leader(log, isr=(1, 2))
    for replica in (2, 3):
        leader.fetched(fetch_of(replica, 1, leader=leader), now=0)
    proposal = leader.proposal(now=0)
    assert proposal is not None
    assert not leader.proposal_failed(proposal, error(), now=0)
    log.append(Entry(5, "x"))
    leader.fetched(fetch_of(2, 2, leader=leader), now=0)
    assert leader.high_watermark == 1
    assert leader.proposal(now=10 * LAG) is None
    assert leader.state_changed(changed(leader, 1, 2), now=LAG + 1)
    assert leader.high_watermark == 2


def test_a_refused_member_does_not_count_any_more() -> None:
    log = MemoryLog(4)
    leader = new_leader(log, isr=(1, 2), now=-LAG)
    leader.fetched(fetch_of(3, 1, leader=leader), now=-LAG)
    proposal = leader.proposal(now=0)
    assert proposal is not None
    log.append(Entry(5, "x"))
    leader.fetched(fetch_of(2, 2, leader=leader), now=1)
    assert leader.high_watermark == 1
    assert leader.proposal_failed(proposal, errors.IneligibleReplica(), now=1)
    assert leader.high_watermark == 2
    assert leader.maximal_isr == {1, 2}


def test_a_refused_proposal_is_not_repeated_at_once() -> None:
    leader = new_leader(MemoryLog(4), isr=(1, 2))
    leader.fetched(fetch_of(3, 1, leader=leader), now=0)
    proposal = leader.proposal(now=0)
    assert proposal is not None
    leader.proposal_failed(proposal, errors.IneligibleReplica(), now=0)
    assert leader.proposal(now=RETRY_MS - 1) is None
    assert leader.proposal(now=RETRY_MS) is not None


def test_kafka_13254_the_high_watermark_rises_when_the_isr_has_shrunk() -> None:
    log = MemoryLog(4)
    leader = new_leader(log, isr=(1, 2, 3))
    leader.fetched(fetch_of(2, 1, leader=leader), now=LAG)
    proposal = leader.proposal(now=LAG + 1)
    assert proposal is not None
    assert leader.high_watermark == 0
    assert leader.state_changed(changed(leader, 1, 2), now=LAG + 1)
    assert leader.high_watermark == 1


def test_an_older_state_or_the_same_again_is_ignored() -> None:
    log = MemoryLog(4)
    leader = new_leader(log, isr=(1, 2))
    image = leader.state
    leader.fetched(fetch_of(3, 1, leader=leader), now=0)
    assert leader.proposal(now=0) is not None
    leader.state_changed(image, now=0)
    assert leader.maximal_isr == {1, 2, 3}
    leader.state_changed(changed(leader, 1, 2, 3), now=0)
    leader.state_changed(image, now=0)
    assert leader.state.isr == (1, 2, 3)


def test_replicas_that_come_and_go_are_followed() -> None:
    leader = new_leader(MemoryLog(4))
    leader.state_changed(replace(changed(leader, 1, 2), replicas=(1, 2, 4), adding=(4,)), now=0)
    assert set(leader.followers) == {2, 4}
    leader.fetched(fetch_of(4, 0, leader=leader), now=0)


def test_a_failure_after_the_image_is_ignored() -> None:
    leader = new_leader(MemoryLog(4), isr=(1, 2))
    leader.fetched(fetch_of(3, 1, leader=leader), now=0)
    proposal = leader.proposal(now=0)
    assert proposal is not None
    leader.state_changed(changed(leader, 1, steps=2), now=0)
    assert not leader.proposal_failed(proposal, errors.RequestTimedOut(), now=0)
    assert leader.state.isr == (1,)
    assert leader.proposal(now=10 * LAG) is None


def test_a_state_of_another_leader_epoch_is_not_for_this_leader() -> None:
    leader = new_leader(MemoryLog(4))
    leader.state_changed(replace(changed(leader, 1), leader_epoch=6), now=0)
    assert leader.state.isr == (1, 2, 3)


# ── fetches that are refused ────────────────────────────────────────────────────────────────────────────────


def test_fetches_of_other_epochs_and_strangers_are_refused() -> None:
    leader = new_leader(MemoryLog(4))
    fetch = fetch_of(2, 1, leader=leader)
    with pytest.raises(errors.FencedLeaderEpoch):
        leader.fetched(fetch._replace(leader_epoch=4), now=0)
    with pytest.raises(errors.UnknownLeaderEpoch):
        leader.fetched(fetch._replace(leader_epoch=6), now=0)
    with pytest.raises(errors.UnknownLeaderEpoch, match="broker 7 is not a replica"):
        leader.fetched(fetch._replace(replica=7), now=0)


def test_kafka_7395_a_zombie_leader_commits_nothing() -> None:
    """Its followers are in a newer epoch. Their fetches are refused and count for nothing."""
    log = MemoryLog(4)
    leader = new_leader(log)
    for replica in (2, 3):
        leader.fetched(fetch_of(replica, 1, leader=leader), now=0)
    log.append(Entry(5, "x"))
    leader.appended(now=0)
    for replica in (2, 3):
        with pytest.raises(errors.UnknownLeaderEpoch):
            leader.fetched(fetch_of(replica, 2, leader=leader)._replace(leader_epoch=6), now=0)
    assert leader.high_watermark == 1
    proposal = leader.proposal(now=LAG + 1)
    assert proposal is not None
    leader.proposal_failed(proposal, errors.FencedLeaderEpoch(), now=LAG + 1)
    assert leader.high_watermark == 1  # It cannot shrink the ISR to itself either.


def test_kafka_19902_a_consumer_that_followed_a_zombie_is_told_where_the_log_differs() -> None:
    """It read up to offset 4 in epoch 3. The new leader of epoch 5 has only 2 records of that epoch."""
    log = MemoryLog(3, 3)
    new_leader(log)
    log.append(*[Entry(5, "x")] * 4)
    assert divergence(log, 4, 3) == EpochEnd(3, 2)
    assert divergence(log, 2, 3) is None


def test_kip_380_a_fetch_of_a_brokers_previous_life_does_not_count() -> None:
    brokers = active_brokers(1, 2, 3)
    leader = new_leader(MemoryLog(4), brokers=brokers)
    brokers[2] = replace(brokers[2], epoch=900)
    with pytest.raises(errors.NotLeaderOrFollower):
        leader.fetched(fetch_of(2, 1, leader=leader), now=0)
    assert leader.followers[2].log_end_offset == -1


def test_a_late_fetch_of_the_previous_life_does_not_count_before_the_image_knows_the_new_one() -> None:
    leader = new_leader(MemoryLog(4, 4))
    leader.fetched(fetch_of(2, 1, leader=leader, broker_epoch=900), now=0)
    with pytest.raises(errors.NotLeaderOrFollower):
        leader.fetched(fetch_of(2, 2, leader=leader), now=0)
    assert leader.followers[2].log_end_offset == 1


@pytest.mark.parametrize(
    ("leader_log", "fetch_offset", "last_epoch", "expected"),
    [
        pytest.param([1, 1], 1, 1, None, id="A: the follower is behind in the same epoch"),
        pytest.param([1, 1, 2], 2, 1, None, id="B: the follower is behind in an older epoch"),
        pytest.param([1, 1], 4, 1, EpochEnd(1, 2), id="C: the follower is ahead in the same epoch"),
        pytest.param([1, 1], 3, 2, EpochEnd(1, 2), id="D: the follower has an epoch that the leader does not have"),
        pytest.param([1, 1, 3], 3, 2, EpochEnd(1, 2), id="E: both have an epoch of their own"),
        pytest.param([1, 1, 3, 3], 2, 2, EpochEnd(1, 2), id="F: the follower left an epoch earlier"),
        pytest.param([3, 3], 2, 2, EpochEnd(2, 0), id="G: the follower has nothing in common"),
        pytest.param([1, 1], 0, -1, None, id="an empty follower"),
    ],
)
def test_a_diverging_log_is_told_where_it_diverges(
    leader_log: list[int], fetch_offset: int, last_epoch: int, expected: EpochEnd | None
) -> None:
    leader = new_leader(MemoryLog(*leader_log))
    fetched = leader.fetched(fetch_of(2, fetch_offset, leader=leader, last_epoch=last_epoch), now=0)
    assert fetched.diverging == expected
    assert leader.followers[2].log_end_offset == (fetch_offset if expected is None else -1)


def test_a_follower_with_nothing_but_deleted_records_starts_again() -> None:
    """Its last record may differ from the committed one, and the leader has forgotten the epoch of both."""
    leader = new_leader(MemoryLog(5, 5, start=7), isr=(1,))
    fetch = fetch_of(2, 7, leader=leader, last_epoch=4)._replace(log_start_offset=0)
    with pytest.raises(errors.OffsetOutOfRange, match="all records before offset 7 are deleted"):
        leader.fetched(fetch, now=0)
    leader.fetched(fetch._replace(log_start_offset=7, last_fetched_epoch=-1), now=0)
    assert leader.followers[2].log_end_offset == 7


@pytest.mark.parametrize("offset", [4, 8])
def test_an_offset_that_the_leader_does_not_have_is_out_of_range(offset: int) -> None:
    leader = new_leader(MemoryLog(4, 4, start=5))
    with pytest.raises(errors.OffsetOutOfRange, match=f"offset {offset} is not between 5 and 7"):
        leader.fetched(fetch_of(2, offset, leader=leader), now=0)


def test_an_epoch_that_is_newer_than_the_leaders_diverges() -> None:
    log = MemoryLog(4, 4)
    leader = new_leader(log)
    log.epochs.pop()
    assert leader.fetched(fetch_of(2, 2, leader=leader, last_epoch=7), now=0).diverging == EpochEnd(4, 2)
