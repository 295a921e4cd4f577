"""Commits and fetches of offsets: who may commit, what is written and what is fetched."""

from __future__ import annotations

from uuid import UUID

import pytest
from group_context import GROUP, REBALANCE, START, GroupContext, protocols

from ottla import errors
from ottla.coordinator import messages as m
from ottla.coordinator import records as r
from ottla.types import TopicPartition

ORDERS = UUID("01234567-89ab-cdef-8899-aabbccddeeff")
OTHER = UUID("ffffffff-89ab-cdef-8899-aabbccddeeff")
NOTHING = m.FetchedPartition("orders", 0)


@pytest.fixture
def context() -> GroupContext:
    return GroupContext()


# ── commit ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_commit_is_a_record_and_is_fetched_afterwards(context: GroupContext) -> None:
    (a,) = context.stable("a")
    call = context.commit("orders", 3, 100, member_id=a, generation_id=1, metadata="note", leader_epoch=7)
    assert call.response == m.CommitResponse(error_codes=(0,))
    assert call.records == [
        (r.OffsetCommitKey(GROUP, "orders", 3), r.OffsetCommitValue(100, 7, "note", context.now)),
    ]
    assert context.committed("orders", 3) == m.FetchedPartition("orders", 3, 100, 7, "note")


def test_the_last_commit_counts_even_if_it_goes_back(context: GroupContext) -> None:
    context.commit(offset=100)
    context.commit(offset=40)
    assert context.committed().offset == 40


def test_a_client_without_a_generation_creates_a_group_by_committing(context: GroupContext) -> None:
    call = context.commit(offset=5)
    assert call.records == [(r.OffsetCommitKey(GROUP, "orders", 0), r.OffsetCommitValue(5, -1, "", START))]
    listed = context.run(context.coordinator.list_groups).response
    assert listed == (m.ListedGroup(GROUP, "", "Empty", "Classic"),)


def test_the_empty_group_id_may_commit_as_it_always_could(context: GroupContext) -> None:
    context.commit(offset=5, group_id="")
    assert context.committed(group_id="").offset == 5


def test_metadata_that_is_null_is_kept_as_empty(context: GroupContext) -> None:
    context.commit(metadata=None)
    assert context.committed().metadata == ""


@pytest.mark.parametrize("metadata", ["x" * 4_096, "ż" * 4_096, "𝄞" * 2_048])
def test_metadata_up_to_the_limit_is_kept(context: GroupContext, metadata: str) -> None:
    assert context.commit(metadata=metadata).response == m.CommitResponse(error_codes=(0,))
    assert context.committed().metadata == metadata


@pytest.mark.parametrize("metadata", ["x" * 4_097, "ż" * 4_097, "𝄞" * 2_049])
def test_oversize_metadata_is_rejected_for_its_partition_only(context: GroupContext, metadata: str) -> None:
    offsets = (m.OffsetToCommit("orders", 0, 1, -1, metadata), m.OffsetToCommit("orders", 1, 2))
    call = context.run(context.coordinator.commit, m.CommitRequest(group_id=GROUP, offsets=offsets))
    assert call.response == m.CommitResponse(error_codes=(errors.OffsetMetadataTooLarge.code, 0))
    assert [record.key for record in call.records] == [r.OffsetCommitKey(GROUP, "orders", 1)]


@pytest.mark.parametrize(
    ("member_id", "generation_id", "error"),
    [
        ("a-1", 0, errors.IllegalGeneration),
        ("a-1", 2, errors.IllegalGeneration),
        ("a-1", -1, errors.IllegalGeneration),
        ("stranger", 1, errors.UnknownMemberId),
        ("", 1, errors.UnknownMemberId),
        ("", -1, errors.UnknownMemberId),
    ],
)
def test_only_members_of_the_present_generation_may_commit(
    context: GroupContext, member_id: str, generation_id: int, error: type[errors.KafkaError]
) -> None:
    context.stable("a")
    with pytest.raises(error):
        context.commit(member_id=member_id, generation_id=generation_id)
    assert context.committed() == NOTHING


def test_a_commit_is_fine_while_others_are_waited_for(context: GroupContext) -> None:
    a, _ = context.stable("a", "b")
    context.enter("c")
    context.commit(offset=9, member_id=a, generation_id=1)
    assert context.committed().offset == 9


def test_a_commit_while_the_assignment_is_awaited_learns_of_the_rebalance(context: GroupContext) -> None:
    a, _ = context.enter("a")
    context.wait_for_generation()
    with pytest.raises(errors.RebalanceInProgress):
        context.commit(member_id=a, generation_id=1)


def test_a_commit_of_a_member_whose_group_is_gone_is_rejected_with_the_error_of_its_version(
    context: GroupContext,
) -> None:
    with pytest.raises(errors.IllegalGeneration):
        context.commit(member_id="a", generation_id=3, api_version=8)
    with pytest.raises(errors.GroupIdNotFound):
        context.commit(member_id="a", generation_id=3, api_version=9)


def test_an_administrator_may_commit_once_the_group_is_empty(context: GroupContext) -> None:
    (a,) = context.stable("a")
    context.leave(a)
    context.commit(offset=77)
    assert context.committed().offset == 77


# ── fetch ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_was_never_committed_is_minus_one_and_no_error(context: GroupContext) -> None:
    context.commit("orders", 1)
    assert context.committed("orders", 0) == NOTHING
    assert context.committed("payments", 1) == m.FetchedPartition("payments", 1)


def test_a_group_that_does_not_exist_has_committed_nothing(context: GroupContext) -> None:
    assert context.committed(group_id="other") == NOTHING
    everything = context.run(context.coordinator.fetch, m.FetchRequest(group_id="other"))
    assert everything.response == m.FetchResponse(group_id="other")


def test_everything_that_a_group_has_committed_can_be_fetched_at_once(context: GroupContext) -> None:
    context.commit("orders", 0, 1)
    context.commit("payments", 2, 3)
    context.commit("orders", 0, 9, group_id="other")
    everything = context.run(context.coordinator.fetch, m.FetchRequest(group_id=GROUP))
    assert everything.response.partitions == (
        m.FetchedPartition("orders", 0, 1),
        m.FetchedPartition("payments", 2, 3),
    )


def test_offsets_of_a_topic_created_again_under_the_same_name_do_not_count(context: GroupContext) -> None:
    context.commit(offset=5, topic_id=ORDERS)
    fetch = context.coordinator.fetch
    answers = [
        context.run(fetch, m.FetchRequest(group_id=GROUP, topics=(m.TopicToFetch("orders", (0,), topic_id),)))
        for topic_id in (ORDERS, OTHER, None)
    ]
    assert [call.response.partitions[0].offset for call in answers] == [5, -1, 5]


# ── delete ────────────────────────────────────────────────────────────────────────────────────────────────────────


def delete(context: GroupContext, *partitions: tuple[str, int]) -> m.DeleteOffsetsResponse:
    request = m.DeleteOffsetsRequest(group_id=GROUP, partitions=partitions)
    response: m.DeleteOffsetsResponse = context.run(context.coordinator.delete_offsets, request).response
    return response


def test_deleted_offsets_are_tombstones_and_gone(context: GroupContext) -> None:
    context.commit("orders", 0)
    context.commit("orders", 1)
    request = m.DeleteOffsetsRequest(group_id=GROUP, partitions=(("orders", 0), ("orders", 7)))
    call = context.run(context.coordinator.delete_offsets, request)
    assert call.response.partitions == (m.DeletedOffset("orders", 0), m.DeletedOffset("orders", 7))
    assert call.records == [(r.OffsetCommitKey(GROUP, "orders", 0), None)]
    assert context.committed("orders", 0) == NOTHING
    assert context.committed("orders", 1).offset == 100


def test_offsets_of_a_topic_that_the_group_reads_cannot_be_deleted(context: GroupContext) -> None:
    (a,) = context.stable("a")
    context.commit("orders", 0, member_id=a, generation_id=1)
    context.commit("old", 0, member_id=a, generation_id=1)
    assert delete(context, ("orders", 0), ("old", 0)).partitions == (
        m.DeletedOffset("orders", 0, errors.GroupSubscribedToTopic.code),
        m.DeletedOffset("old", 0),
    )
    assert context.committed("orders").offset == 100
    assert context.committed("old").offset == -1


def test_offsets_of_a_group_that_is_not_made_of_consumers_can_be_deleted_only_when_it_is_empty(
    context: GroupContext,
) -> None:
    worker, _ = context.enter("worker", protocol_type="connect", protocols=protocols("default"))
    with pytest.raises(errors.NonEmptyGroup):
        delete(context, ("orders", 0))
    context.leave(worker)
    assert delete(context, ("orders", 0)).partitions == (m.DeletedOffset("orders", 0),)


def test_a_pending_member_does_not_keep_the_offsets_of_an_empty_group(context: GroupContext) -> None:
    context.commit("orders", 0)
    assert context.join(client_id="worker").error_code == errors.MemberIdRequired.code
    assert context.state == "Empty"
    assert delete(context, ("orders", 0)).partitions == (m.DeletedOffset("orders", 0),)
    assert context.committed("orders", 0) == NOTHING


def test_offsets_of_a_group_that_does_not_exist_cannot_be_deleted(context: GroupContext) -> None:
    with pytest.raises(errors.GroupIdNotFound):
        delete(context, ("orders", 0))


def test_offsets_of_partitions_that_are_no_more_are_forgotten_in_every_group(context: GroupContext) -> None:
    context.commit("orders", 0)
    context.commit("orders", 1)
    context.commit("orders", 0, group_id="other")
    call = context.run(context.coordinator.partitions_deleted, [TopicPartition("orders", 0)])
    assert {record.key for record in call.records} == {
        r.OffsetCommitKey(GROUP, "orders", 0),
        r.OffsetCommitKey("other", "orders", 0),
    }
    assert all(record.is_tombstone for record in call.records)
    assert context.committed("orders", 1).offset == 100


# ── transactions ──────────────────────────────────────────────────────────────────────────────────────────────────


def transactional(context: GroupContext, offset: int, producer_id: int = 9, **changes: object) -> None:
    request = m.TransactionalCommitRequest(
        **{
            "group_id": GROUP,
            "transactional_id": "t",
            "producer_id": producer_id,
            "producer_epoch": 0,
            "offsets": (m.OffsetToCommit("orders", 0, offset),),
            **changes,
        }  # type: ignore[arg-type]
    )
    for record in context.coordinator.commit_transactional(request, now=context.now).records:
        context.coordinator.replay(record, producer_id=producer_id)


def test_offsets_of_a_transaction_count_when_it_is_committed(context: GroupContext) -> None:
    transactional(context, 50)
    assert context.committed() == NOTHING
    assert context.committed(require_stable=True).error_code == errors.UnstableOffsetCommit.code
    context.coordinator.replay_end_transaction(9, committed=True)
    assert context.committed(require_stable=True).offset == 50


def test_offsets_of_a_transaction_that_is_aborted_never_count(context: GroupContext) -> None:
    context.commit(offset=10)
    transactional(context, 50)
    context.coordinator.replay_end_transaction(9, committed=False)
    assert context.committed(require_stable=True).offset == 10


def test_a_plain_commit_after_the_one_in_the_transaction_wins(context: GroupContext) -> None:
    transactional(context, 50)
    context.commit(offset=60)
    context.coordinator.replay_end_transaction(9, committed=True)
    assert context.committed().offset == 60


@pytest.mark.parametrize("width", [1, 2, 3, 1_000])
def test_a_deleted_topic_is_forgotten_in_groups_with_less_and_with_more_of_it_than_it_is_wide(
    context: GroupContext, width: int
) -> None:
    context.commit("orders", 0)
    context.commit("old", 0)
    context.commit("orders", 0, group_id="reader")
    context.commit("old", 0, group_id="stranger")
    transactional(context, 50, group_id="pending")
    call = context.run(
        context.coordinator.partitions_deleted, [TopicPartition("orders", number) for number in range(width)]
    )
    assert {record.key for record in call.records} == {
        r.OffsetCommitKey(group_id, "orders", 0) for group_id in (GROUP, "reader", "pending")
    }
    assert len(call.records) == 3
    assert all(record.is_tombstone for record in call.records)
    context.coordinator.replay_end_transaction(9, committed=True)
    assert context.coordinator.offsets.count == 2


def test_deleting_an_offset_forgets_what_is_pending_for_it(context: GroupContext) -> None:
    transactional(context, 50)
    delete(context, ("orders", 0))
    context.coordinator.replay_end_transaction(9, committed=True)
    assert context.committed(require_stable=True) == NOTHING


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"member_id": "a-1", "generation_id": 7}, errors.IllegalGeneration),
        ({"member_id": "stranger", "generation_id": 1}, errors.UnknownMemberId),
        ({"group_id": "other", "generation_id": 1}, errors.IllegalGeneration),
    ],
)
def test_a_transaction_of_an_old_generation_may_not_commit(
    context: GroupContext, changes: dict[str, object], error: type[errors.KafkaError]
) -> None:
    context.stable("a")
    with pytest.raises(error):
        transactional(context, 50, **changes)


def test_a_transaction_without_a_generation_may_commit_into_a_group_with_members(context: GroupContext) -> None:
    context.stable("a", rebalance_timeout=REBALANCE)
    transactional(context, 50)
    context.coordinator.replay_end_transaction(9, committed=True)
    assert context.committed().offset == 50
