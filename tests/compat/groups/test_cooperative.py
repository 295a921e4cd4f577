"""Incremental rebalances: only moving partitions are revoked."""

from __future__ import annotations

import pytest

from .conftest import MakeScenario
from .drivers import CONSUMER_PROTOCOL
from .members import Member
from .scenario import Scenario

COOPERATIVE = "cooperative-sticky"


def taken(member: Member, since: int) -> set[object]:
    """Return the partitions that a member lost after this many of its events."""
    return {tp for event in member.journal.events[since:] if event.what != "assigned" for tp in event.partitions}


def check_only_what_moves_is_taken(group: Scenario, kinds: list[str]) -> None:
    group.feed()
    members = [group.join(kind, assignor=COOPERATIVE) for kind in kinds[:2]]
    before = group.settle()
    group.flowing()
    seen = [len(member.journal.events) for member in members]
    third = group.join(kinds[2], assignor=COOPERATIVE)
    after = group.settle()
    for member, since in zip(members, seen, strict=True):
        name = member.options.client_id
        assert taken(member, since) == before[name] - after[name]
    assert sum(len(taken(member, since)) for member, since in zip(members, seen, strict=True)) == 2
    group.flowing()
    before, seen = after, [len(member.journal.events) for member in members]
    group.leave(third)
    after = group.settle()
    for member, since in zip(members, seen, strict=True):
        assert taken(member, since) == set()
        assert after[member.options.client_id] > before[member.options.client_id]
    group.finish()


@pytest.mark.parametrize("kind", ["confluent", CONSUMER_PROTOCOL, "kafka_python"])
def test_only_what_moves_is_taken(make_scenario: MakeScenario, kind: str) -> None:
    check_only_what_moves_is_taken(make_scenario(6), [kind] * 3)


def test_two_libraries_cooperate(make_scenario: MakeScenario) -> None:
    check_only_what_moves_is_taken(make_scenario(6), ["kafka_python", "confluent", "kafka_python"])
