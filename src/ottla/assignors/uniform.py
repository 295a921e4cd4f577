"""``uniform``: the broker's default for consumer groups. As even as possible, then with the fewest moves.

The broker passes each member's present target assignment as its owned partitions, so no two members can claim the same
partition.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.assignors.balance import Owned, balance, sorted_members
from ottla.assignors.base import Assignment, Assignor, Subscription


class UniformAssignor(Assignor):
    """Kafka's ``uniform``: balance first, stickiness second, for equal and unequal subscriptions."""

    name = "uniform"

    def assign(
        self, partitions_per_topic: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        members = sorted_members(subscriptions)
        claims = [Owned(0, subscriptions[member_id].owned_partitions) for member_id in members]
        topics = [subscriptions[member_id].topics for member_id in members]
        shares = balance(partitions_per_topic, topics, claims)
        return {member_id: Assignment(partitions) for member_id, partitions in zip(members, shares, strict=True)}
