"""``sticky``: as even as can be, and among the even assignments one that moves the fewest partitions.

The members revoke everything before they join, so each tells in its user data what it had, and in which generation:

    UserData => [topic:string [partition:int32]] (version 1) generation:int32
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping

from ottla.assignors.balance import balance, settle_claims, sorted_members
from ottla.assignors.base import NO_GENERATION, Assignment, Assignor, Partitions, Subscription
from ottla.assignors.embedded import MalformedProtocol, Reader, write_partitions


class StickyAssignor(Assignor):
    """Kafka's ``sticky`` on its wire format."""

    name = "sticky"

    def __init__(self) -> None:
        self._had: Partitions | None = None
        self._generation = NO_GENERATION

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        return None if self._had is None else encode_user_data(self._had, self._generation)

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        self._had = assignment.partitions
        self._generation = generation

    def assign(
        self, partitions_per_topic: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        members = sorted_members(subscriptions)
        claims = [decode_user_data(subscriptions[member_id].user_data) for member_id in members]
        owners = settle_claims(partitions_per_topic, claims)
        topics = [subscriptions[member_id].topics for member_id in members]
        shares = balance(partitions_per_topic, topics, owners)
        return {member_id: Assignment(partitions) for member_id, partitions in zip(members, shares, strict=True)}


def encode_user_data(partitions: Partitions, generation: int) -> bytes:
    return write_partitions(partitions, partitions) + struct.pack(">i", generation)


def decode_user_data(data: bytes | None) -> tuple[int, Partitions]:
    """Return generation and partitions; what cannot be read is forgotten, since it only serves stickiness."""
    if not data:
        return NO_GENERATION, {}
    reader = Reader(data)
    try:
        partitions = reader.partitions()
    except MalformedProtocol:
        return NO_GENERATION, {}
    try:
        return reader.integer(), partitions
    except MalformedProtocol:  # version 0 ends here
        return NO_GENERATION, partitions
