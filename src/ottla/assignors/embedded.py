"""The consumer protocol inside a classic group: the bytes of subscriptions and assignments.

The coordinator does not read them; consumers, group migrations and assignors with user data do.
All numbers are big-endian, and each message starts with its version, 0 to 3:

    Subscription => version:int16 [topic:string] user_data:bytes?
                    (1+) [topic:string [partition:int32]]  (2+) generation:int32  (3+) rack_id:string?
    Assignment   => version:int16 [topic:string [partition:int32]] user_data:bytes?

A newer version is read as version 3, since versions only add fields at the end.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from ottla.assignors.base import NO_GENERATION, Assignment, Partitions, Subscription

PROTOCOL_TYPE = "consumer"
HIGHEST_VERSION = 3
_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")


class MalformedProtocol(ValueError):
    """The bytes do not follow the consumer protocol."""


class Reader:
    """Reads values from bytes, one after the other, and never past the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise MalformedProtocol(
                f"{size} bytes are expected at position {self._position}, and {len(self._data)} bytes are there in all."
            )
        data = self._data[self._position : end]
        self._position = end
        return data

    def short(self) -> int:
        value: int = _SHORT.unpack(self.take(2))[0]
        return value

    def integer(self) -> int:
        value: int = _INT.unpack(self.take(4))[0]
        return value

    def string(self) -> str:
        return self._text(self.short())

    def nullable_string(self) -> str | None:
        size = self.short()
        return None if size == -1 else self._text(size)

    def _text(self, size: int) -> str:
        try:
            return self.take(size).decode()
        except UnicodeDecodeError as error:
            raise MalformedProtocol(f"A string is not UTF-8: {error}.") from None

    def nullable_bytes(self) -> bytes | None:
        size = self.integer()
        return None if size == -1 else self.take(size)

    def count(self) -> int:
        count = self.integer()
        if count < 0:
            raise MalformedProtocol(f"The length of an array is {count}.")
        return count

    def partitions(self) -> dict[str, list[int]]:
        """Read ``[topic [partition]]``; a topic that is named twice is one topic."""
        topics: dict[str, list[int]] = {}
        for _ in range(self.count()):
            numbers = topics.setdefault(self.string(), [])
            count = self.count()
            numbers.extend(struct.unpack(f">{count}i", self.take(4 * count)))
        return topics


def write_string(text: str) -> bytes:
    data = text.encode()
    return _SHORT.pack(len(data)) + data


def write_bytes(data: bytes | None) -> bytes:
    return _INT.pack(-1) if data is None else _INT.pack(len(data)) + data


def write_partitions(partitions: Partitions, topics: Iterable[str]) -> bytes:
    chosen = [(topic, partitions[topic]) for topic in topics]
    parts = [_INT.pack(len(chosen))]
    for topic, numbers in chosen:
        parts.append(write_string(topic))
        parts.append(struct.pack(f">{len(numbers) + 1}i", len(numbers), *numbers))
    return b"".join(parts)


def encode_subscription(subscription: Subscription, version: int = HIGHEST_VERSION) -> bytes:
    """Return a subscription as bytes; topics and partitions are sorted, as Kafka's client does."""
    topics = sorted(subscription.topics)
    parts = [_SHORT.pack(version), _INT.pack(len(topics)), *map(write_string, topics)]
    parts.append(write_bytes(subscription.user_data))
    if version >= 1:
        owned = {topic: sorted(numbers) for topic, numbers in subscription.owned_partitions.items() if numbers}
        parts.append(write_partitions(owned, sorted(owned)))
    if version >= 2:
        parts.append(_INT.pack(subscription.generation))
    if version >= 3:
        rack_id = subscription.rack_id
        parts.append(_SHORT.pack(-1) if rack_id is None else write_string(rack_id))
    return b"".join(parts)


def decode_subscription(data: bytes) -> Subscription:
    """Read a subscription. The instance id is not in it: the coordinator knows it."""
    reader = Reader(data)
    version = _version(reader)
    topics = tuple(reader.string() for _ in range(reader.count()))
    user_data = reader.nullable_bytes()
    owned = reader.partitions() if version >= 1 else {}
    generation = reader.integer() if version >= 2 else NO_GENERATION
    rack_id = reader.nullable_string() if version >= 3 else None
    return Subscription(topics, user_data, owned, generation, None, rack_id or None)


def encode_assignment(assignment: Assignment, version: int = HIGHEST_VERSION) -> bytes:
    """Return an assignment as bytes, its topics in the order that they have."""
    partitions = {topic: numbers for topic, numbers in assignment.partitions.items() if numbers}
    return _SHORT.pack(version) + write_partitions(partitions, partitions) + write_bytes(assignment.user_data)


def decode_assignment(data: bytes) -> Assignment:
    """Read an assignment."""
    reader = Reader(data)
    _version(reader)
    partitions = reader.partitions()
    return Assignment(partitions, reader.nullable_bytes())


def version_of(data: bytes) -> int:
    """Return the version that a subscription or an assignment was written in."""
    return Reader(data).short()


def _version(reader: Reader) -> int:
    version = reader.short()
    if version < 0:
        raise MalformedProtocol(f"The version of the consumer protocol is {version}; it starts at 0.")
    return min(version, HIGHEST_VERSION)
