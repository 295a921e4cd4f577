"""The coordinator assigns with uniform, range or a custom assignor."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ottla import errors
from ottla.assignors import Assignment, Assignor, BroadcastAssignor, Subscription
from ottla.coordinator.config import GroupConfig
from ottla.coordinator.consumer.groups import default_assignors
from unit.coordinator.consumer_context import ConsumerContext, having


class LastTakesAll(Assignor):
    """Gives everything to the member with the last id."""

    name = "last-takes-all"

    def assign(
        self, partitions_per_topic: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        last = max(subscriptions)
        topics = {topic: range(partitions_per_topic[topic]) for topic in subscriptions[last].topics}
        return {last: Assignment(topics)}


class Wrong(Assignor):
    """Always returns the same assignment."""

    name = "wrong"

    def __init__(self, partitions: Mapping[str, list[int]], member_id: str = "a") -> None:
        self._result = {member_id: Assignment(partitions)}

    def assign(
        self, partitions_per_topic: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        return self._result


def test_uniform_is_the_default_and_spreads_over_topics() -> None:
    context = ConsumerContext()
    context.enroll("a", "orders", "users")
    context.enroll("b", "orders", "users")
    context.settle_consumers()
    assert context.described().assignor_name == "uniform"
    assert sorted(sum(map(len, each.values())) for each in context.assigned().values()) == [4, 5]


def test_range_gives_partitions_of_one_number_to_one_member() -> None:
    context = ConsumerContext()
    context.grow(orders=6, users=6)
    for member in ("a", "b"):
        context.enroll(member, "orders", "users", server_assignor="range")
    context.settle_consumers()
    assert context.described().assignor_name == "range"
    assert context.assigned() == {
        "a": {"orders": [0, 1, 2], "users": [0, 1, 2]},
        "b": {"orders": [3, 4, 5], "users": [3, 4, 5]},
    }


def test_the_assignor_that_most_members_want_is_used() -> None:
    context = ConsumerContext()
    context.enroll("a", server_assignor="uniform")
    context.enroll("b", server_assignor="range")
    assert context.described().assignor_name == "range"  # Of equals the first by name.
    context.enroll("c", server_assignor="uniform")
    assert context.described().assignor_name == "uniform"


def test_the_first_of_the_configuration_is_the_default() -> None:
    context = ConsumerContext(GroupConfig(group_consumer_assignors=("range", "uniform")))
    context.enroll("a")
    assert context.described().assignor_name == "range"


def test_a_name_that_is_no_assignor_is_told_when_the_broker_starts() -> None:
    for names in (("uniform", "magic"), ()):
        with pytest.raises(errors.ConfigError, match=r"^group\.consumer\.assignors: (unknown|the list)"):
            default_assignors(names)


def test_a_member_whose_assignor_the_broker_has_no_longer_gets_the_default() -> None:
    context = ConsumerContext()
    context.enroll("a", server_assignor="range")
    context.assignors = [LastTakesAll()]
    context.restart()
    context.enroll("b")
    context.settle_consumers()
    assert context.assigned() == {"a": {}, "b": {"orders": [0, 1, 2, 3, 4, 5]}}


def test_an_assignor_that_the_broker_has_not_is_rejected() -> None:
    call = ConsumerContext().enroll("a", server_assignor="magic")
    assert (call.error_code, call.response.error_message) == (
        errors.UnsupportedAssignor.code,
        "ServerAssignor magic is not supported. Supported assignors: uniform, range.",
    )


def test_an_assignor_of_the_user_decides() -> None:
    context = ConsumerContext(assignors=[LastTakesAll()])
    context.enroll("a")
    context.enroll("b", server_assignor="last-takes-all")
    context.settle_consumers()
    assert context.assigned() == {"a": {}, "b": {"orders": [0, 1, 2, 3, 4, 5]}}


@pytest.mark.parametrize(
    ("assignor", "why"),
    [
        (Wrong({"orders": [6]}), "it gives partition 6 of orders, which has 6"),
        (Wrong({"orders": [-1]}), "it gives partition -1 of orders, which has 6"),
        (Wrong({"orders": [0, 0]}), "it gives orders-0 twice"),
        (Wrong({"users": [0]}), "it gives partitions of users to a, which does not subscribe to it"),
        (Wrong({"gone": [0]}), "it gives partitions of gone to a, which does not subscribe to it"),
        (Wrong({"orders": [0]}, "x"), "it gives partitions to x, which is not a member"),
    ],
)
def test_an_assignor_that_is_wrong_changes_nothing_and_is_named(assignor: Assignor, why: str) -> None:
    context = ConsumerContext(assignors=[assignor])
    call = context.enroll("a")
    assert (call.error_code, call.outcome.records) == (errors.UnknownServerError.code, ())
    assert call.response.error_message == (f"Failed to compute a new target assignment for epoch 1 with 'wrong': {why}")


def test_an_assignor_that_gives_a_partition_to_two_members_is_rejected() -> None:
    context = ConsumerContext(assignors=[BroadcastAssignor()])
    assert context.enroll("a").error_code == 0
    assert context.enroll("b").error_code == errors.UnknownServerError.code
    assert context.beat("a", 1).error_code == 0
    assert context.assigned() == {"a": {"orders": [0, 1, 2, 3, 4, 5]}}


def test_a_third_member_moves_as_few_partitions_as_can_be() -> None:
    context = ConsumerContext()
    context.enroll("a")
    context.enroll("b")
    context.settle_consumers()
    context.enroll("c")
    context.settle_consumers()
    assert context.assigned() == {"a": {"orders": [0, 1]}, "b": {"orders": [3, 4]}, "c": {"orders": [2, 5]}}
    assert context.beat("c", 3, topic_partitions=having(orders=[2, 5])).records == []
