"""What the page of transactions shows: ids, open transactions, and the partitions that they block."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla.clients.admin.transactions import LONGEST_MS, ListedTransaction, OpenTransaction, TransactionDescription
from ottla.types import Millis, TopicPartition

#: States in which a transaction is not over.
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")


@dataclass(frozen=True, slots=True)
class Blocked:
    """A partition that read_committed consumers cannot read to the end."""

    partition: TopicPartition
    stable: int
    """The last stable offset: committed records are before it."""
    end: int
    """The high watermark."""
    transactions: tuple[OpenIn, ...] = ()

    @property
    def records(self) -> int:
        """How many offsets wait."""
        return self.end - self.stable


@dataclass(frozen=True, slots=True)
class OpenIn:
    """A transaction that is open in a partition."""

    producer_id: int
    producer_epoch: int
    start_offset: int
    last_write: Millis
    transactional_id: str | None
    """None if no coordinator knows it."""
    since: Millis | None
    is_first: bool
    """Whether it is the one that blocks the partition: later ones wait behind it."""

    @property
    def is_unknown(self) -> bool:
        """Whether no coordinator knows it, so that nobody will end it."""
        return self.transactional_id is None

    def hangs(self, now: Millis) -> bool:
        """Whether it is unknown for longer than any transaction may take."""
        return self.is_unknown and now - self.last_write >= LONGEST_MS


def blocked_partitions(
    ends: Mapping[TopicPartition, tuple[int, int]],
    open_: Iterable[OpenTransaction],
    described: Iterable[TransactionDescription],
) -> list[Blocked]:
    """The blocked partitions, the longest wait first. `ends` are last stable offsets and high watermarks."""
    known = {(one.producer_id, partition): one for one in described for partition in one.partitions}
    by_partition: dict[TopicPartition, list[OpenTransaction]] = {}
    for one in open_:
        by_partition.setdefault(one.partition, []).append(one)
    found = []
    for key, (stable, end) in ends.items():
        listed = sorted(by_partition.get(key, ()), key=lambda one: one.start_offset)
        if stable >= end and not listed:
            continue
        rows = [_open_in(one, known.get((one.producer.producer_id, key)), is_first=one is listed[0]) for one in listed]
        found.append(Blocked(key, stable, end, tuple(rows)))
    return sorted(found, key=lambda one: (-one.records, one.partition))


def _open_in(one: OpenTransaction, description: TransactionDescription | None, *, is_first: bool) -> OpenIn:
    return OpenIn(
        one.producer.producer_id,
        one.producer.producer_epoch,
        one.start_offset,
        one.producer.last_timestamp,
        None if description is None else description.transactional_id,
        None if description is None else description.started_at,
        is_first,
    )


def chosen(listed: Sequence[ListedTransaction], search: str, state: str) -> list[ListedTransaction]:
    """The ids with this text in their name and in this state; those that are not over come first."""
    found = [
        one for one in listed if search.lower() in one.transactional_id.lower() and (not state or one.state == state)
    ]
    return sorted(found, key=lambda one: (one.state not in OPEN_STATES, one.transactional_id))
