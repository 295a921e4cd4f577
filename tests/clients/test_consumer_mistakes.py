"""What goes wrong at the edge between a consumer and its user or its group: it is told, and it does not last."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla import Consumer, errors

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
