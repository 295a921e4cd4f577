"""The acknowledged records and their producers. Producer threads write it; the rounds read it."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import NamedTuple

from ottla.types import TopicPartition

_FILLING = bytes(range(256)) * 8
KEYS = 25
UNKNOWN_OFFSET = -1


class Ack(NamedTuple):
    """An acknowledged record and its offset."""

    producer: str
    sequence: int
    offset: int


class Ledger:
    """All acknowledgements and all errors."""

    def __init__(self) -> None:
        self.acks: dict[TopicPartition, list[Ack]] = defaultdict(list)
        self.sent: dict[tuple[str, TopicPartition], int] = defaultdict(int)
        """The number of records that each producer has sent to each partition, acknowledged or not."""
        self.problems: list[str] = []

    @property
    def acknowledged(self) -> int:
        return sum(map(len, self.acks.values()))

    def next_record(self, producer: str, where: TopicPartition, rng: random.Random) -> tuple[bytes, bytes]:
        """Return key and value of the next record of a producer for a partition. The value identifies the record."""
        sequence = self.sent[producer, where]
        self.sent[producer, where] = sequence + 1
        return key_of(producer, sequence), value_of(producer, sequence, rng.randrange(300))

    def acknowledge(self, value: bytes, where: TopicPartition, offset: int) -> None:
        producer, sequence = origin_of(value)
        self.acks[where].append(Ack(producer, sequence, offset))

    def problem(self, what: str) -> None:
        self.problems.append(what)


def key_of(producer: str, sequence: int) -> bytes:
    """The key of a record: few enough that compaction has something to do.

    >>> key_of("p", KEYS + 3)
    b'p-3'
    """
    return b"%s-%d" % (producer.encode(), sequence % KEYS)


def value_of(producer: str, sequence: int, filling: int) -> bytes:
    """A value that says where it comes from.

    >>> value_of("p", 3, 2)
    b'p|3|\\x00\\x01'
    """
    return b"%s|%d|%s" % (producer.encode(), sequence, _FILLING[:filling])


def origin_of(value: bytes) -> tuple[str, int]:
    """Producer and sequence of a value.

    >>> origin_of(b"p|3|...")
    ('p', 3)
    """
    producer, sequence, _ = value.split(b"|", 2)
    return producer.decode(), int(sequence)
