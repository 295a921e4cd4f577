"""A group moves from the classic to the consumer protocol and back, member by member, without downtime."""

from __future__ import annotations

import pytest

from .conftest import MakeScenario
from .drivers import CLASSIC, CONSUMER_PROTOCOL


@pytest.mark.parametrize("kind", CLASSIC)
def test_members_are_replaced_one_by_one(make_scenario: MakeScenario, kind: str) -> None:
    group = make_scenario(6)
    group.feed()
    old = [group.join(kind), group.join(kind)]
    group.settle()
    group.flowing()
    new = []
    for member in old:
        new.append(group.join(CONSUMER_PROTOCOL))
        group.settle()
        group.leave(member)
        group.settle()
        group.flowing()
    for member in new:
        group.join(kind)
        group.settle()
        group.leave(member)
        group.settle()
        group.flowing()
    group.finish()
