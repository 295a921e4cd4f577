"""``sticky``: as even as possible, then with the fewest moved partitions.

The members revoke everything before they join, so each sends in its user data what it had, and in which generation:

    UserData => [topic:string [partition:int32]] (version 1) generation:int32
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ottla.assignors.balance import Line, Owned, balance, sorted_members
from ottla.assignors.base import NO_GENERATION, Assignment, Assignor, Partitions, Subscription
from ottla.assignors.embedded import MalformedProtocol, Reader, write_partitions

_SIZE = struct.Struct(">h")
_COUNT = struct.Struct(">i")
_COUNT_AND_FIRST = struct.Struct(">ii")


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
        claims = [Told(subscriptions[member_id].user_data) for member_id in members]
        topics = [subscriptions[member_id].topics for member_id in members]
        shares = balance(partitions_per_topic, topics, claims)
        return {member_id: Assignment(partitions) for member_id, partitions in zip(members, shares, strict=True)}


def encode_user_data(partitions: Partitions, generation: int) -> bytes:
    return write_partitions(partitions, partitions) + struct.pack(">i", generation)


def decode_user_data(data: bytes | None) -> tuple[int, Partitions]:
    """Return generation and partitions. Malformed data is ignored, since it only serves stickiness."""
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


@dataclass(frozen=True, slots=True)
class Told:
    """A claim as user data, read without a list per topic, because large groups have very many of them."""

    data: bytes | None

    def __call__(self, line: Line) -> tuple[int, Sequence[int]]:
        if self.data:
            try:
                return _read_places(self.data, line.places_by_bytes)
            except struct.error:
                pass
        return Owned(*decode_user_data(self.data))(line)


def _read_places(data: bytes, places: Mapping[bytes, tuple[int, int]]) -> tuple[int, list[int]]:
    """Read well-formed user data; struct.error if it needs the slower, tolerant reader."""
    found: list[int] = []
    (topics,) = _COUNT.unpack_from(data, 0)
    if topics < 0:
        raise struct.error
    at = 4
    for _ in range(topics):
        (size,) = _SIZE.unpack_from(data, at)
        end = at + 2 + size
        start, there = places.get(data[at + 2 : end], (0, 0))
        count, first = _COUNT_AND_FIRST.unpack_from(data, end)
        if size < 0 or count < 0:
            raise struct.error
        at = end + 4 + 4 * count
        if count == 1:
            if 0 <= first < there:
                found.append(start + first)
        else:
            numbers = struct.unpack_from(f">{count}i", data, end + 4)
            found += [start + number for number in numbers if 0 <= number < there]
    return (_COUNT.unpack_from(data, at)[0] if len(data) - at >= 4 else NO_GENERATION), found
