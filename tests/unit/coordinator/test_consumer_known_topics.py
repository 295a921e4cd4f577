"""What a consumer group knows of its topics."""

from __future__ import annotations

from ottla.coordinator.consumer.topics import KnownTopics, metadata_hash
from ottla.coordinator.group import TopicInfo
from unit.coordinator.consumer_context import USERS, topics


def known(*names: str, **partitions: int) -> KnownTopics:
    remembered = KnownTopics()
    remembered.remember(names or partitions, topics(**partitions), 1)
    return remembered


def test_the_topics_are_checked_until_they_change_or_the_log_fails() -> None:
    remembered = KnownTopics()
    assert not remembered.are_checked
    remembered.remember(["orders"], topics(orders=6), 1)
    assert remembered.are_checked
    remembered.changed()
    assert not remembered.are_checked
    remembered.remember(["orders"], topics(orders=6), 2)
    remembered.append_failed(1)
    assert not remembered.are_checked


def test_a_check_whose_epoch_the_log_has_is_not_taken_back() -> None:
    remembered = known(orders=6)
    remembered.append_failed(1)
    assert remembered.are_checked
    assert remembered.difference(["orders"], topics(orders=8))[1] == "orders has 8 partitions instead of 6"


def test_the_hash_depends_on_ids_and_partitions_and_on_nothing_else() -> None:
    now = topics(orders=6, users=3)
    assert metadata_hash(["orders", "users", "gone"], now) == metadata_hash(["users", "orders"], now) != 0
    assert metadata_hash(["orders"], now) != metadata_hash(["orders", "users"], now)
    assert metadata_hash(["orders"], now) != metadata_hash(["orders"], topics(orders=7))
    assert metadata_hash(["orders"], now) != metadata_hash(["orders"], {"orders": TopicInfo(USERS, 6)})
    assert metadata_hash(["gone"], now) == metadata_hash([], now) == 0
