from __future__ import annotations

from group_context import protocols, subscription

from ottla.coordinator.classic.subscriptions import same_topics, topics_of_all


def test_topics_are_known_if_all_subscriptions_can_be_read() -> None:
    assert topics_of_all([subscription("a", "b"), subscription("b", "c", version=1)]) == {"a", "b", "c"}
    assert topics_of_all([subscription("a"), b"\0"]) is None
    assert topics_of_all([]) == set()


def test_a_subscription_is_the_same_if_the_order_of_topics_or_the_owned_partitions_differ() -> None:
    before = protocols("range", metadata=subscription("a", "b"))
    assert same_topics(before, protocols("range", metadata=subscription("b", "a", version=1)))
    assert not same_topics(before, protocols("range", metadata=subscription("b")))
    assert not same_topics(before, protocols("sticky", metadata=subscription("a", "b")))
    assert not same_topics(protocols("range", metadata=b"x"), protocols("range", metadata=b"y"))
