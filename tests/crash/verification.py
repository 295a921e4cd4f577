"""Checks of a log, whatever happened to its broker. They raise AssertionError."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.wire import Batch, Wire, list_offset, read_log

from ottla.types import TopicPartition

from .ledger import Ack, key_of, origin_of

MAX_SEQUENCE = 2**31 - 1


@dataclass
class PartitionLog:
    """A partition as read from the broker, from the first record to the last."""

    where: TopicPartition
    batches: list[Batch] = field(default_factory=list)
    origins: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Producer and sequence of the record at each offset."""
    keys: dict[bytes, int] = field(default_factory=dict)
    """The last offset of each key."""

    @property
    def fingerprint(self) -> list[tuple[int, int]]:
        """Return offset and CRC of every batch."""
        return [(batch.header.base_offset, batch.header.crc) for batch in self.batches]


def read_partition(wire: Wire, where: TopicPartition) -> PartitionLog:
    """Read a whole partition, and check the CRC of every batch."""
    log = PartitionLog(where)
    for batch in read_log(wire, where.topic, where.partition, list_offset(wire, where.topic, where.partition, -2)):
        log.batches.append(batch)
        for record in batch.records:
            assert record.value is not None, f"{where} has a record without value at {record.offset}"
            assert record.offset not in log.origins, f"{where} has offset {record.offset} twice"
            log.origins[record.offset] = origin_of(record.value)
            log.keys[record.key or b""] = record.offset
    return log


def check_dense(log: PartitionLog) -> None:
    """Check that every offset from 0 on is there, in order."""
    following = 0
    for batch in log.batches:
        assert batch.header.base_offset == following, f"{log.where}: {batch.header.base_offset} after {following - 1}"
        offsets = [record.offset for record in batch.records]
        assert offsets == list(range(following, batch.header.next_offset)), f"{log.where}: {offsets} in one batch"
        following = batch.header.next_offset


def check_acknowledged(log: PartitionLog, acks: Sequence[Ack]) -> None:
    """Check that every acknowledged record is at its offset."""
    for ack in acks:
        found = log.origins.get(ack.offset)
        assert found == (ack.producer, ack.sequence), f"{log.where} has {found} where {ack} was acknowledged"


def check_compacted(log: PartitionLog, acks: Sequence[Ack]) -> None:
    """Check that the last acknowledged record of each key, or a later one, is there, at the right offset."""
    last: dict[bytes, int] = {}
    for ack in acks:
        key = key_of(ack.producer, ack.sequence)
        last[key] = max(last.get(key, -1), ack.offset)
        found = log.origins.get(ack.offset)
        assert found in (None, (ack.producer, ack.sequence)), f"{log.where} has {found} where {ack} was acknowledged"
    for key, offset in last.items():
        assert log.keys.get(key, -1) >= offset, f"{log.where}: of {key!r} there is {log.keys.get(key)}, not {offset}"
    offsets = list(log.origins)
    assert offsets == sorted(offsets), f"{log.where}: offsets are not in order"


def check_order(log: PartitionLog, exactly_once: Mapping[str, bool]) -> None:
    """Check that the records of each producer are in order and without gaps, and exist once if that was promised."""
    found: dict[str, list[int]] = defaultdict(list)
    for producer, sequence in log.origins.values():
        found[producer].append(sequence)
    for producer, sequences in found.items():
        if exactly_once[producer]:
            _check_count_up(log, producer, sequences)
        else:
            _check_count_up(log, producer, list(dict.fromkeys(sequences)))


def _check_count_up(log: PartitionLog, producer: str, sequences: list[int]) -> None:
    for expected, sequence in enumerate(sequences):
        assert sequence == expected, (
            f"{log.where}: {producer} has {sequence} where {expected} should be: "
            f"…{sequences[max(0, expected - 3) : expected + 3]}…"
        )


def check_sequence_numbers(log: PartitionLog) -> None:
    """Check that the batches of an idempotent producer are complete in every epoch, without duplicates."""
    last: dict[tuple[int, int], int] = {}
    for header in (batch.header for batch in log.batches):
        if header.producer_id < 0:
            continue
        key = (header.producer_id, header.producer_epoch)
        expected = 0 if key not in last or last[key] == MAX_SEQUENCE else last[key] + 1
        assert header.base_sequence == expected, f"{log.where}: {header} after sequence {last.get(key)}"
        last[key] = header.last_sequence


def check_prefix(log: PartitionLog, before: Sequence[tuple[int, int]]) -> None:
    """Check that records that were served once are still served."""
    now = log.fingerprint[: len(before)]
    assert now == list(before), f"{log.where} is not what it was: {_first_difference(now, before)}"


def _first_difference(now: Sequence[tuple[int, int]], before: Sequence[tuple[int, int]]) -> str:
    for new, old in zip(now, before, strict=False):
        if new != old:
            return f"offset and CRC were {old}, and are {new}"
    return f"there were {len(before)} batches, and are {len(now)}"
