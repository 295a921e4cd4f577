"""What the brokers acknowledged, to compare it with what the topic has in the end."""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ottla.cli.terminal import plural, table
from ottla.clients.consumer.asynchronous import AsyncConsumer
from ottla.types import TopicPartition

_POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Kept:
    """What a partition has of the records that were acknowledged."""

    partition: int
    acknowledged: int
    lost: int
    repeated: int
    """Records that the partition has more often than they were acknowledged."""


@dataclass(slots=True)
class Ledger:
    """The acknowledged records of each partition, eight bytes for each."""

    _marks: dict[int, array[int]] = field(default_factory=dict)

    def acknowledged(self, partition: int, value: bytes) -> None:
        self._marks.setdefault(partition, array("Q")).append(_mark(value))

    def compare(self, partition: int, values: Iterable[bytes]) -> Kept:
        """Compare with all records of a partition. A record that was sent twice must be there twice.

        >>> ledger = Ledger()
        >>> for value in (b"one", b"two", b"two"):
        ...     ledger.acknowledged(0, value)
        >>> ledger.compare(0, [b"two", b"three"])
        Kept(partition=0, acknowledged=3, lost=2, repeated=1)
        """
        told = Counter(self._marks.get(partition, ()))
        found = Counter(map(_mark, values))
        return Kept(partition, told.total(), (told - found).total(), (found - told).total())


def _mark(value: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(value, digest_size=8).digest())


async def compare(ledger: Ledger, servers: str, topic: str, ends: Mapping[int, int]) -> list[Kept]:
    """Read the whole topic, and compare each partition."""
    values: dict[int, list[bytes]] = {partition: [] for partition in ends}
    async with AsyncConsumer(bootstrap_servers=servers) as consumer:
        keys = {TopicPartition(topic, partition): end for partition, end in ends.items() if end}
        if keys:
            await consumer.assign(list(keys))
            await consumer.seek_to_beginning(*keys)
        while any([await consumer.position(key) < end for key, end in keys.items()]):
            for record in await consumer.poll(_POLL_SECONDS):
                values[record.partition].append(record.value or b"")
    return [ledger.compare(partition, found) for partition, found in sorted(values.items())]


def verdict(kept: Sequence[Kept]) -> str:
    """
    >>> verdict([Kept(0, 3, 0, 0), Kept(1, 2, 0, 0)])
    'all 5 acknowledged records are in the topic, each of them once'
    >>> verdict([Kept(0, 3, 1, 0), Kept(1, 2, 0, 1)])
    '1 of 5 acknowledged records is lost; 1 record is repeated'
    """
    acknowledged, lost, repeated = (sum(getattr(one, name) for one in kept) for name in _COUNTS)
    if not lost and not repeated:
        return f"all {acknowledged:,} acknowledged records are in the topic, each of them once"
    found = f"{lost:,} of {acknowledged:,} acknowledged records {'is' if lost == 1 else 'are'} lost"
    return found + (f"; {plural(repeated, 'record')} {'is' if repeated == 1 else 'are'} repeated" if repeated else "")


_COUNTS = ("acknowledged", "lost", "repeated")


def lines(kept: Sequence[Kept]) -> Iterator[str]:
    """The counts of each partition, and the verdict."""
    titles = ["PARTITION", *(name.upper() for name in _COUNTS)]
    yield table(titles, [[one.partition, *(getattr(one, name) for name in _COUNTS)] for one in kept])
    yield ""
    yield f"{'NOT OK' if any(one.lost or one.repeated for one in kept) else 'OK'}: {verdict(kept)}"
