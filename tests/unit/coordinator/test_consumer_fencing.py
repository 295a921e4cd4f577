"""Members are fenced for wrong epochs, unknown ids and commits of old epochs."""

from __future__ import annotations

import pytest

from ottla import errors
from ottla.coordinator import messages as m
from ottla.coordinator.config import GroupConfig
from ottla.coordinator.consumer.member import MemberState
from ottla.coordinator.consumer.topics import metadata_hash
from unit.coordinator.consumer_context import (
    REBALANCE,
    SESSION,
    ConsumerContext,
    current_record,
    epoch_record,
    group_of,
    having,
    rebalance_timer,
    session_timer,
    tombstones,
)
from unit.coordinator.group_context import GROUP, START


@pytest.mark.parametrize("epoch", [3, 1])
def test_another_epoch_than_the_members_is_fenced(epoch: int) -> None:
    context = group_of("a", "b")
    size = "greater" if epoch == 3 else "smaller"
    call = context.beat("a", epoch)
    assert call.error_code == errors.FencedMemberEpoch.code
    assert call.response.error_message == (
        f"The consumer group member has a {size} member epoch ({epoch}) than the one known by the group coordinator "
        "(2). The member must abandon all its partitions and rejoin."
    )
    assert call.outcome.records == ()


def test_the_epoch_before_is_taken_when_the_last_answer_was_lost() -> None:
    context = group_of("a", "b")
    call = context.beat("a", 1, topic_partitions=having(orders=[0, 1, 2]))
    assert (call.error_code, call.response.member_epoch) == (0, 2)


def test_the_epoch_before_is_fenced_if_the_member_has_what_it_should_not() -> None:
    context = group_of("a", "b")
    assert context.beat("a", 1, topic_partitions=having(orders=[0, 3])).error_code == errors.FencedMemberEpoch.code


def test_a_fenced_member_joins_again_and_gets_its_partitions_back() -> None:
    context = group_of("a", "b")
    call = context.enroll("a")
    assert (call.response.member_epoch, call.response.assignment) == (2, having(orders=[0, 1, 2]))
    assert call.records == []


def test_a_member_that_nobody_knows_is_told_so() -> None:
    context = group_of("a")
    call = context.beat("x", 1)
    assert call.error_code == errors.UnknownMemberId.code
    assert call.response.error_message == "Member x is not a member of group billing."
    assert context.beat("x", -1).error_code == errors.UnknownMemberId.code


def test_a_member_that_leaves_is_removed_and_the_epoch_raised() -> None:
    context = group_of("a", "b")
    call = context.beat("b", -1)
    assert (call.response.member_id, call.response.member_epoch, call.error_code) == ("b", -1, 0)
    assert call.records == [*tombstones("b"), epoch_record(3, metadata_hash(["orders"], context.topics))]
    assert set(call.timers.values()) == {None}
    assert context.described().group_state == "Assigning"


def test_the_last_member_that_leaves_leaves_an_empty_group() -> None:
    context = group_of("a")
    assert context.beat("a", -1).records == [*tombstones("a"), epoch_record(2, 0)]
    assert (context.described().group_state, context.described().group_epoch) == ("Empty", 2)


def test_a_member_that_is_not_heard_of_is_removed_when_its_session_ends() -> None:
    context = group_of("a", "b")
    context.now += 30_000
    context.beat("a", 2)
    assert context.sleep(14_999) == []
    [expired] = context.sleep(1)
    assert (expired.at, expired.key) == (START + SESSION, session_timer("b"))
    assert expired.records == [*tombstones("b"), epoch_record(3, metadata_hash(["orders"], context.topics))]
    assert context.beat("b", 2).error_code == errors.UnknownMemberId.code
    # The other's session goes on from its own heartbeat.
    assert [expired.key for expired in context.sleep(30_000)] == [session_timer("a")]


def test_the_session_timeout_is_the_brokers() -> None:
    context = ConsumerContext(GroupConfig(group_consumer_session_timeout_ms=50_000))
    context.config = GroupConfig(group_consumer_session_timeout_ms=50_000)
    assert context.enroll("a").timers == {session_timer("a"): START + 50_000}


def test_a_member_that_does_not_give_up_its_partitions_in_time_is_removed() -> None:
    context = ConsumerContext()
    context.enroll("a", rebalance_timeout=10_000)
    context.enroll("b")
    context.beat("a", 1)
    context.now += 5_000
    context.beat("a", 1, topic_partitions=having(orders=[0, 1, 2, 3, 4, 5]))
    [expired] = context.sleep(5_000)
    assert (expired.at, expired.key) == (START + 10_000, rebalance_timer("a"))
    assert expired.records[:3] == tombstones("a")
    assert context.beat("b", 2).response.assignment == having(orders=[0, 1, 2, 3, 4, 5])


def test_a_member_that_gave_up_its_partitions_keeps_its_place() -> None:
    context = ConsumerContext()
    context.enroll("a", rebalance_timeout=10_000)
    context.enroll("b")
    context.beat("a", 1)
    context.beat("a", 1, topic_partitions=having(orders=[0, 1, 2]))
    assert context.sleep(10_000) == []
    assert list(context.consumers.members) == ["a", "b"]


def test_a_member_in_a_state_of_a_newer_broker_starts_anew() -> None:
    context = group_of("a")
    record = current_record("a", 1, 1, state=MemberState.STABLE)
    assert record.value is not None
    unknown = record._replace(value=type(record.value)(1, 1, 99))  # type: ignore[call-arg]
    context.coordinator.replay(unknown)
    assert context.beat("a", 1, topic_partitions=having(orders=[0])).error_code == errors.FencedMemberEpoch.code
    call = context.enroll("a")
    assert (call.response.member_epoch, call.response.assignment) == (1, having(orders=[0, 1, 2, 3, 4, 5]))


# ── offsets ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_transaction_commits_as_a_member_or_as_nobody() -> None:
    context = group_of("a")
    fields = {"group_id": GROUP, "transactional_id": "t", "producer_id": 1, "producer_epoch": 0}
    offsets = (m.OffsetToCommit("orders", 0, 5),)

    def commit(**changes: object) -> object:
        request = m.TransactionalCommitRequest(**fields, **changes, offsets=offsets)  # type: ignore[arg-type]
        return context.coordinator.commit_transactional(request, now=context.now).response

    assert commit(member_id="a", generation_id=1) == commit()
    with pytest.raises(errors.IllegalGeneration):
        commit(member_id="a", generation_id=7)


def test_the_rebalance_timeout_of_a_member_can_change() -> None:
    context = group_of("a", "b")
    context.beat("a", 2, rebalance_timeout=1_000)
    context.enroll("c")
    assert context.beat("a", 2).timers == {rebalance_timer("a"): START + 1_000}
    assert context.consumers.members["b"].rebalance_timeout == REBALANCE
