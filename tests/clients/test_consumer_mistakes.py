"""What goes wrong at the edge between a consumer and its user or its group: it is told, and it does not last."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla import Admin, Assignor, Consumer, errors
from ottla.assignors import Assignment

from .consumer_scenes import new_group, poll_until

Make = Callable[..., Consumer]
PROTOCOLS = ("classic", "consumer")


@pytest.fixture
def make(bootstrap_servers: str) -> Iterator[Make]:
    made: list[Consumer] = []

    def consumer(**config: Any) -> Consumer:
        made.append(Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", **config))
        return made[-1]

    yield consumer
    for one in made:
        one.close()


def members(servers: str, group: str) -> int:
    with Admin(bootstrap_servers=servers) as admin:
        return len(admin.describe_groups(group)[group].members)


# ── what the group refuses ────────────────────────────────────────────────────────────────────────────────────────


def test_a_member_without_an_assignor_in_common_gets_in_when_the_others_are_gone(make_topic: Any, make: Make) -> None:
    topic, group = make_topic(2), new_group()
    first = make(group_id=group, partition_assignment_strategy="range")
    second = make(group_id=group, partition_assignment_strategy="roundrobin")
    for one in (first, second):
        one.subscribe([topic])
    poll_until([first], first.assignment, "partitions")
    for _ in range(2):
        with pytest.raises(errors.InconsistentGroupProtocol):
            poll_until([second], lambda: False, "to be refused")
    first.close()
    poll_until([second], lambda: len(second.assignment()) == 2, "what the first one had")


def test_a_pattern_that_the_broker_cannot_read_does_not_spoil_the_next_subscription(
    make_topic: Any, make: Make
) -> None:
    topic = make_topic()
    consumer = make(group_id=new_group(), group_protocol="consumer")
    consumer.subscribe(pattern="((")
    with pytest.raises(errors.InvalidRegularExpression):
        poll_until([consumer], lambda: False, "to be refused")
    consumer.unsubscribe()
    consumer.subscribe([topic])
    poll_until([consumer], consumer.assignment, "partitions")


class Moody(Assignor):
    """Gives everything to everybody, unless it is in a bad mood."""

    name = "moody"
    fails = True

    def assign(self, partitions_per_topic: Any, subscriptions: Any) -> Any:
        if Moody.fails:
            raise LookupError("a mistake of the user's")
        return {
            member: Assignment({topic: list(range(count)) for topic, count in partitions_per_topic.items()})
            for member in subscriptions
        }


def test_an_assignor_that_raises_is_told_with_its_cause_and_asked_again(make_topic: Any, make: Make) -> None:
    Moody.fails = True
    consumer = make(group_id=new_group(), partition_assignment_strategy=[Moody])
    consumer.subscribe([make_topic()])
    with pytest.raises(errors.InconsistentGroupProtocol, match="the assignor moody failed") as caught:
        poll_until([consumer], lambda: False, "to fail")
    assert isinstance(caught.value.__cause__, LookupError)
    Moody.fails = False
    poll_until([consumer], consumer.assignment, "partitions")


def test_a_leader_whose_assignor_raised_leaves_when_it_is_closed(
    bootstrap_servers: str, make_topic: Any, make: Make
) -> None:
    Moody.fails = True
    topic, group = make_topic(), new_group()
    consumer = make(group_id=group, partition_assignment_strategy=[Moody])
    consumer.subscribe([topic])
    with pytest.raises(errors.InconsistentGroupProtocol):
        poll_until([consumer], lambda: False, "to fail")
    consumer.close()
    assert members(bootstrap_servers, group) == 0, "else the next one waits until the session ends"
