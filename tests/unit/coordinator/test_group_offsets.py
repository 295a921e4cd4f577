"""Commits and fetches of offsets: who may commit, what is written and what is fetched."""

from __future__ import annotations

from uuid import UUID

import pytest
from group_context import GROUP, REBALANCE, START, GroupContext

from ottla import errors
from ottla.coordinator import messages as m
from ottla.coordinator import records as r
from ottla.types import TopicPartition

ORDERS = UUID("01234567-89ab-cdef-8899-aabbccddeeff")
OTHER = UUID("ffffffff-89ab-cdef-8899-aabbccddeeff")
NOTHING = m.FetchedPartition("orders", 0)


# ── commit ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_commit_is_a_record_and_is_fetched_afterwards(context: GroupContext) -> None:
    (a,) = context.stable("a")
    call = context.commit("orders", 3, 100, member_id=a, generation_id=1, metadata="note", leader_epoch=7)
    assert call.response == m.CommitResponse(error_codes=(0,))
    assert call.records == [(r.OffsetCommitKey(GROUP, "orders", 3), r.OffsetCommitValue(100, 7, "note", context.now))]
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


# ── fetch ─────────────────────────────────────────────────────────────────────────────────────────────────────────


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


def test_a_pending_member_does_not_keep_the_offsets_of_an_empty_group(context: GroupContext) -> None:
    context.commit("orders", 0)
    assert context.join(client_id="worker").error_code == errors.MemberIdRequired.code
    assert context.state == "Empty"
    assert delete(context, ("orders", 0)).partitions == (m.DeletedOffset("orders", 0),)
    assert context.committed("orders", 0) == NOTHING


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
