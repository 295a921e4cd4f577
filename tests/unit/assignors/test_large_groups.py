"""Assigning very many partitions takes seconds: the work grows with partitions, not with partitions times members."""

from __future__ import annotations

import pytest

from ottla.assignors import BY_NAME, Subscription
from unit.assignors.groups import given, sizes


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky", "cooperative-sticky", "uniform"])
def test_500_members_share_50_000_partitions_when_one_subscribes_to_one_topic_only(name: str) -> None:
    topics = [f"t{number:03}" for number in range(100)]
    subscriptions = {f"m{number:03}": Subscription(topics) for number in range(500)}
    subscriptions["other"] = Subscription(topics[:1])
    result = given(BY_NAME[name]().assign(dict.fromkeys(topics, 500), subscriptions))
    assert sum(sizes(result).values()) == 50_000
