"""What to read: topics, a pattern or partitions."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.unit.consuming.consuming_values import T0

from ottla.consuming.subscription import Mode, Subscription, SubscriptionConflict
from ottla.errors import InvalidTopicException
from ottla.types import TopicPartition


def test_the_modes_exclude_each_other_until_unsubscribe() -> None:
    subscription = Subscription()
    subscription.subscribe(["a", "b"])
    for other in (lambda: subscription.subscribe_pattern("a.*", on_server=False), lambda: subscription.assign([T0])):
        with pytest.raises(SubscriptionConflict, match=r"already reads topics.*unsubscribe\(\) first"):
            other()
    subscription.unsubscribe()
    subscription.assign([T0])
    with pytest.raises(SubscriptionConflict, match="already reads partitions"):
        subscription.subscribe(["a"])
    assert not subscription.by_group


def test_the_version_tells_that_something_changed() -> None:
    subscription = Subscription()
    subscription.subscribe(["a"])
    first = subscription.version
    subscription.subscribe(["a"])
    assert subscription.version == first
    subscription.subscribe(["a", "b"])
    assert subscription.version > first


def test_a_pattern_matches_whole_names_and_tells_changes() -> None:
    subscription = Subscription()
    subscription.subscribe_pattern(re.compile("orders-.*"), on_server=False)
    assert subscription.match(["orders-eu", "my-orders-eu", "orders"])
    assert subscription.topics == {"orders-eu"}
    assert not subscription.match(["orders-eu"])
    assert subscription.match(["orders-eu", "orders-us"])
    assert subscription.mode is Mode.PATTERN


def test_a_pattern_for_the_broker_is_left_to_it() -> None:
    subscription = Subscription()
    subscription.subscribe_pattern("a.*", on_server=True)
    assert subscription.server_pattern == "a.*"
    assert not subscription.match(["abc"])


@pytest.mark.parametrize("on_server", [False, True])
@pytest.mark.parametrize(
    ("pattern", "wider"),
    [
        ("^orders-", ("^orders-.*", "orders-eu")),
        ("a|orders-", ("(a|orders-).*", "orders-eu")),
        ("orders-.*", None),
        ("orders", None),
        ("orders$", None),
        ("x*", None),
        ("users", None),
    ],
)
def test_a_pattern_that_matches_only_the_beginning_of_a_name(
    pattern: str, wider: tuple[str, str] | None, on_server: bool
) -> None:
    topics = ["billing", "orders-eu", *(["orders"] if pattern == "orders" else [])]
    subscription = Subscription()
    assert subscription.too_narrow(topics) is None
    subscription.subscribe_pattern(pattern, on_server=on_server)
    assert subscription.too_narrow(topics) == wider
    if wider is not None:
        assert re.fullmatch(wider[0], wider[1])


def test_a_pattern_that_only_the_broker_understands_is_not_judged() -> None:
    subscription = Subscription()
    subscription.subscribe_pattern(r"\pN+", on_server=True)
    assert subscription.too_narrow(["7"]) is None


@pytest.mark.parametrize("wrong", [[""], ["  "], [7], [b"t"]])
def test_names_are_checked(wrong: list[str]) -> None:
    subscription = Subscription()
    with pytest.raises(ValueError, match="not a topic name"):
        subscription.subscribe(wrong)
    assert subscription.mode is Mode.NONE


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("bad topic!", "the topic name 'bad topic!' may only contain ASCII letters and digits, '.', '_' and '-'"),
        ("\ud800", "may only contain ASCII"),
        ("x" * 250, "has 250 characters; the limit is 249"),
        ("..", "may not be '.' or '..'"),
    ],
)
def test_a_name_that_no_broker_allows_is_not_waited_for(name: str, problem: str) -> None:
    subscription = Subscription()
    for choose in (lambda: subscription.subscribe(["t", name]), lambda: subscription.assign([TopicPartition(name, 0)])):
        with pytest.raises(InvalidTopicException, match=re.escape(problem)):
            choose()
        assert subscription.mode is Mode.NONE
    subscription.subscribe(["x" * 249])


@pytest.mark.parametrize("number", [0.0, "0", None])
def test_numbers_of_partitions_are_checked(number: Any) -> None:
    with pytest.raises(TypeError, match="the partition of topic t must be an int, not"):
        Subscription().assign([TopicPartition("t", number)])
    with pytest.raises(ValueError, match="topic t cannot have a partition -1"):
        Subscription().assign([TopicPartition("t", -1)])


def test_a_string_is_no_list_of_topics() -> None:
    with pytest.raises(TypeError, match=r"subscribe\(\['orders'\]\)"):
        Subscription().subscribe("orders")
    with pytest.raises(TypeError, match="TopicPartition"):
        Subscription().assign([("orders", 0)])  # type: ignore[list-item]
