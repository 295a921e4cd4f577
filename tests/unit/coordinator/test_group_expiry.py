"""Offsets of an empty group expire. A group without members and offsets is deleted."""

from __future__ import annotations

import pytest
from group_context import EXPIRY_TIMER, GROUP, GroupContext, protocols, subscription

from ottla.coordinator import records as r
from ottla.coordinator.config import GroupConfig

RETENTION = 10_080 * 60_000
CHECK = 600_000
GONE = (r.GroupMetadataKey(GROUP), None)


@pytest.fixture
def context() -> GroupContext:
    context = GroupContext()
    context.run(context.coordinator.loaded)
    return context


def tombstone(topic: str, partition: int = 0) -> tuple[r.OffsetCommitKey, None]:
    return r.OffsetCommitKey(GROUP, topic, partition), None


def check(context: GroupContext) -> list[r.CoordinatorRecord]:
    """Wait for the next expiry check, and return what it wrote."""
    records: list[r.CoordinatorRecord] = []
    while not records:
        expired = context.sleep(CHECK)
        records = [record for entry in expired if entry.key == EXPIRY_TIMER for record in entry.records]
        if any(entry.key == EXPIRY_TIMER for entry in expired):
            return records
    return records


def keep_alive(context: GroupContext, member_id: str, duration: int) -> list[r.CoordinatorRecord]:
    """Let time pass with heartbeats; return what was written."""
    written: list[r.CoordinatorRecord] = []
    end = context.now + duration
    while context.now < end:
        written += [record for entry in context.sleep(1_200_000) for record in entry.records]
        context.heartbeat(member_id)
    return written


def test_what_has_expired_is_looked_for_every_ten_minutes(context: GroupContext) -> None:
    start = context.now
    assert context.timers.next_deadline() == start + CHECK
    context.sleep(CHECK)
    assert context.timers.next_deadline() == start + 2 * CHECK


def test_offsets_of_a_group_that_only_keeps_offsets_expire_from_their_last_commit(context: GroupContext) -> None:
    context.commit("orders", 0)
    context.sleep(RETENTION - CHECK)
    context.commit("payments", 0)
    assert check(context) == [tombstone("orders")]
    context.sleep(RETENTION - 3 * CHECK)
    assert context.committed("payments").offset == 100
    context.sleep(4 * CHECK)
    assert context.coordinator.groups == {}
    assert context.committed("payments").offset == -1


def test_offsets_of_an_empty_group_expire_from_when_it_became_empty(context: GroupContext) -> None:
    (a,) = context.stable("a", session_timeout=1_800_000)
    context.commit("orders", 0, member_id=a, generation_id=1)
    assert keep_alive(context, a, 2 * RETENTION) == []
    context.leave(a)
    emptied = context.now
    context.sleep(RETENTION - CHECK)
    assert context.committed().offset == 100
    expired = [entry for entry in context.sleep(2 * CHECK) if entry.records]
    assert [entry.records for entry in expired] == [[tombstone("orders"), GONE]]
    assert emptied + RETENTION <= expired[0].at < emptied + RETENTION + CHECK
    assert context.coordinator.groups == {}


def test_a_topic_that_a_living_group_no_longer_reads_expires(context: GroupContext) -> None:
    (a,) = context.stable("a", session_timeout=1_800_000)
    context.commit("orders", 0, member_id=a, generation_id=1)
    context.commit("old", 0, member_id=a, generation_id=1)
    assert keep_alive(context, a, RETENTION + 2 * CHECK) == [tombstone("old")]
    assert context.committed("orders").offset == 100


def test_nothing_expires_while_the_group_rebalances() -> None:
    retention = 3_600_000
    context = GroupContext(GroupConfig(offsets_retention_ms=retention))
    context.run(context.coordinator.loaded)
    (a,) = context.stable("a", session_timeout=1_800_000, rebalance_timeout=2 * retention)
    context.commit("old", 0, member_id=a, generation_id=1)
    context.join(client_id="b", session_timeout=1_800_000)
    context.join(a, session_timeout=1_800_000, rebalance_timeout=2 * retention)
    context.group.sessions.by_member["b-2"].deadline = context.now + 2 * retention
    context.sleep(retention + 2 * CHECK)
    assert context.state == "PreparingRebalance"
    assert context.committed("old").offset == 100


def test_a_group_of_unknown_subscriptions_expires_nothing_while_it_lives(context: GroupContext) -> None:
    (a,) = context.stable(
        "a", session_timeout=1_800_000, protocols=protocols("range", metadata=subscription("orders")[:4])
    )
    context.commit("old", 0, member_id=a, generation_id=1)
    assert keep_alive(context, a, RETENTION + 2 * CHECK) == []


def test_an_old_client_may_keep_its_offsets_for_its_own_retention(context: GroupContext) -> None:
    call = context.commit("orders", 0, retention_time=3_000_000)
    value = call.records[0].value
    assert isinstance(value, r.OffsetCommitValue)
    assert value.expire_timestamp == context.now + 3_000_000
    context.sleep(3_000_000 - 1)
    assert context.committed().offset == 100
    context.sleep(CHECK)
    assert context.committed().offset == -1


def test_an_empty_group_without_offsets_goes_with_its_history(context: GroupContext) -> None:
    (a,) = context.stable("a")
    context.leave(a)
    context.sleep(CHECK)
    assert context.coordinator.groups == {}
    assert context.rebalances() == []
    assert context.coordinator.histories.next_number(GROUP) == 0


def test_a_group_with_a_pending_member_stays(context: GroupContext) -> None:
    context.sleep(CHECK - 1_000)
    member_id = context.join().response.member_id
    context.sleep(2_000)
    assert context.join(member_id).is_parked


def test_an_offset_pending_in_a_transaction_keeps_the_committed_one_and_the_group(context: GroupContext) -> None:
    context.commit("orders", 0)
    key, value = r.OffsetCommitKey(GROUP, "orders", 0), r.OffsetCommitValue(7, -1, "", context.now)
    context.coordinator.replay(r.CoordinatorRecord(key, value), producer_id=9)
    context.sleep(2 * RETENTION)
    assert context.committed().offset == 100
