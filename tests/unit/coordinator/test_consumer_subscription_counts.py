"""What the members of a consumer group subscribe to, before and after a change."""

from __future__ import annotations

from ottla.coordinator import records as r
from ottla.coordinator.consumer.member import Member
from ottla.coordinator.consumer.subscriptions import Subscriptions
from unit.coordinator.consumer_context import ORDERS, topics

A = Member("a", subscribed_topic_names=("orders", "users"), server_assignor="range")
B = Member("b", subscribed_topic_names=("orders",), server_assignor="uniform")
C = Member("c", subscribed_topic_regex="p.*")


def subscriptions(*members: Member) -> Subscriptions:
    counts = Subscriptions()
    for member in members:
        counts.add(member)
    counts.resolve("p.*", r.ConsumerGroupRegularExpressionValue(("prices",), 0, 0))
    return counts


def test_members_that_leave_take_their_topics_with_them() -> None:
    counts = subscriptions(A, B, C)
    assert counts.topics() == {"orders", "users", "prices"}
    assert counts.topics([A]) == {"orders", "prices"}
    assert counts.topics([A, C]) == {"orders"}
    assert counts.topics([B], B._replace(subscribed_topic_names=("new",))) == {"orders", "users", "prices", "new"}
    assert counts.topics([C], C._replace(subscribed_topic_regex="")) == {"orders", "users"}


def test_what_is_removed_leaves_no_counts() -> None:
    counts, empty = subscriptions(A, B, C), subscriptions()
    for member in (A, B, C):
        counts.remove(member)
    assert vars(counts) == vars(empty)


def test_an_unresolved_expression_matches_nothing() -> None:
    counts = subscriptions(C)
    assert counts.topics_of(C) == {"prices"}
    assert counts.topics_of(C._replace(subscribed_topic_regex="o.*")) == set()
    counts.resolve("p.*", None)
    assert counts.topics_of(C) == set()
    assert not counts.includes("prices")


def test_only_topics_that_exist_have_ids() -> None:
    assert subscriptions(A).topic_ids_of(A, topics(orders=1)) == {ORDERS}


def test_members_subscribe_alike_if_those_that_do_not_leave() -> None:
    counts = subscriptions(A, B)
    assert not counts.all_like(B, [B])
    assert counts.all_like(B, [A])
    assert counts.all_like(A, [B])


def test_most_members_choose_the_assignor_and_of_equals_the_first_by_name() -> None:
    counts = subscriptions(A, B, C)
    assert counts.preferred_assignor() == "range"
    assert counts.preferred_assignor([A]) == "uniform"
    assert counts.preferred_assignor([C], C._replace(server_assignor="uniform")) == "uniform"
    assert subscriptions(C).preferred_assignor() is None
