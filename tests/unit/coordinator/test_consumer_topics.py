"""A consumer group follows its topics: more partitions, new topics, deleted topics."""

from __future__ import annotations

from ottla.coordinator.consumer.topics import metadata_hash
from ottla.coordinator.group import TopicInfo
from unit.coordinator.consumer_context import (
    ORDERS,
    ConsumerContext,
    current_record,
    epoch_record,
    having,
    target_epoch_record,
    target_record,
    topic_id,
    topics,
)


def test_more_partitions_raise_the_epoch_at_the_next_heartbeat() -> None:
    context = ConsumerContext()
    context.enroll("a")
    context.grow(orders=8)
    call = context.beat("a", 1)
    assert (call.response.member_epoch, call.response.assignment) == (2, having(orders=range(8)))
    assert call.records == [
        epoch_record(2, metadata_hash(["orders"], context.topics)),
        target_record("a", orders=range(8)),
        target_epoch_record(2),
        current_record("a", 2, 1, assigned=having(orders=range(8))),
    ]
    assert context.beat("a", 2).records == []


def test_more_partitions_of_a_topic_that_nobody_reads_change_nothing() -> None:
    context = ConsumerContext()
    context.enroll("a")
    context.grow(users=9)
    assert context.beat("a", 1).records == []


def test_a_topic_that_is_deleted_is_taken_away() -> None:
    context = ConsumerContext()
    context.enroll("a", "orders", "users")
    context.drop_topic("users")
    call = context.beat("a", 1)
    assert call.response.assignment == having(orders=range(6))
    assert context.consumers.members["a"].member_epoch == 1
    assert context.beat("a", 1, topic_partitions=having(orders=range(6))).response.member_epoch == 2


def test_a_topic_that_is_made_again_is_another_topic() -> None:
    context = ConsumerContext()
    context.enroll("a", "users")
    context.topics["users"] = TopicInfo(topic_id(9), 3)
    context.run(context.coordinator.topics_changed, ["users"], created=True)
    assert context.beat("a", 1).response.assignment == ()
    [given] = context.beat("a", 1, topic_partitions=()).response.assignment
    assert (given.topic_id, given.partitions) == (topic_id(9), (0, 1, 2))


def test_growth_while_the_broker_was_down_is_seen_after_the_restart() -> None:
    context = ConsumerContext()
    context.enroll("a")
    context.topics = topics(orders=8)
    context.restart()
    assert context.beat("a", 1).response.assignment == having(orders=range(8))


def test_an_epoch_that_was_not_written_is_raised_again() -> None:
    context = ConsumerContext()
    context.enroll("a")
    context.grow(orders=8)
    with context.losing():
        context.beat("a", 1)
    assert context.beat("a", 1).response.assignment == having(orders=range(8))


def test_a_topic_that_has_fewer_partitions_than_the_log_says_is_assigned_as_it_is() -> None:
    """As after a power failure that lost the last partitions in the metadata but not the target in the log."""
    context = ConsumerContext()
    context.enroll("a")
    context.enroll("b")
    context.settle_consumers()
    context.topics["orders"] = TopicInfo(ORDERS, 2)
    context.restart()
    context.settle_consumers()
    assert sorted(context.assigned().values(), key=str) == [{"orders": [0]}, {"orders": [1]}]
