"""``cooperative-sticky``: assigns as ``sticky`` does, and moves a partition in two steps.

Members keep their partitions during a rebalance. A partition that moves from one member to another is left out first,
so that its owner revokes it and joins again; the next rebalance gives it to the new owner. The user data is the
generation, because subscriptions of version 0 and 1 have no field for it.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping

from ottla.assignors.balance import Owned, balance, sorted_members
from ottla.assignors.base import NO_GENERATION, Assignment, Assignor, Subscription

_GENERATION = struct.Struct(">i")


class CooperativeStickyAssignor(Assignor):
    """Kafka's ``cooperative-sticky`` on its wire format."""

    name = "cooperative-sticky"
    cooperative = True

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        return _GENERATION.pack(self._generation)

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        self._generation = generation

    def assign(
        self, partitions_per_topic: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        members = sorted_members(subscriptions)
        told = [subscriptions[member_id] for member_id in members]
        claims = [Owned(generation_of(each), each.owned_partitions) for each in told]
        shares = balance(partitions_per_topic, [each.topics for each in told], claims, keep_moved_back=True)
        return {member_id: Assignment(partitions) for member_id, partitions in zip(members, shares, strict=True)}


def generation_of(subscription: Subscription) -> int:
    """Return the member's last generation, from its field or, in old versions, from the user data."""
    if subscription.generation >= 0:
        return subscription.generation
    data = subscription.user_data
    return _GENERATION.unpack_from(data)[0] if data is not None and len(data) >= 4 else NO_GENERATION
