"""Which batches of a Fetch response are read: whole and undamaged ones, no control batches, no aborted transactions.

A control batch ends a transaction. The key of its one record is version int16, type int16 (0 abort, 1 commit). The
aborted transactions of a Fetch response give the offset from which a producer's records belong to one, until its abort
marker.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from ottla.records import BatchHeader, Buffer, CorruptBatch, decode_keys, scan

_CONTROL_KEY = struct.Struct(">hh")
_MARKERS = {0: "abort", 1: "commit"}


class Aborted(NamedTuple):
    """From `first_offset` on, this producer's records belong to an aborted transaction."""

    producer_id: int
    first_offset: int


class Readable(NamedTuple):
    """The batches to read, by their places, and the offset and leader epoch after all of the bytes."""

    batches: list[tuple[int, BatchHeader]]
    next_offset: int | None
    """None if there is not one whole batch."""
    next_epoch: int | None
    """The leader epoch of the last batch, even if that is not read."""
    problem: str | None
    """Why nothing can be read although there are bytes."""


def readable(data: Buffer, aborted: Iterable[Aborted] | None, *, check_crcs: bool) -> Readable:
    """Find what to read in the bytes of a Fetch response, whose last batch may be cut off.

    `aborted` is None if the consumer reads uncommitted records too. Damage after the first batch is reported by the
    fetch that starts with it.
    """
    found = scan(data, 0, len(data), check_crc=check_crcs)
    if not found.batches:
        problem = found.problem
        if problem is None and found.incomplete:
            problem = "the first batch is cut off: it is larger than fetch.max.bytes and the broker did not send all"
        return Readable([], None, None, problem)
    last = found.batches[-1][1]
    epoch = last.partition_leader_epoch if last.partition_leader_epoch >= 0 else None
    if aborted is None:
        return Readable([one for one in found.batches if not one[1].is_control], last.next_offset, epoch, None)
    return Readable(_committed(data, found.batches, aborted), last.next_offset, epoch, None)


def _committed(
    data: Buffer, batches: list[tuple[int, BatchHeader]], aborted: Iterable[Aborted]
) -> list[tuple[int, BatchHeader]]:
    to_come = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
    aborting: set[int] = set()
    kept = []
    for position, header in batches:
        while to_come and to_come[-1].first_offset <= header.last_offset:
            aborting.add(to_come.pop().producer_id)
        if header.is_control:
            if _is_abort(data, position):
                aborting.discard(header.producer_id)
        elif not header.is_transactional or header.producer_id not in aborting:
            kept.append((position, header))
    return kept


def marker_of(key: bytes | None) -> str:
    """What the record of a control batch with this key does to its transaction: commit, abort or unknown.

    >>> marker_of(b"\\0\\0\\0\\1")
    'commit'
    """
    if key is None or len(key) < _CONTROL_KEY.size:
        return "unknown"
    return _MARKERS.get(_CONTROL_KEY.unpack_from(key)[1], "unknown")


def _is_abort(data: Buffer, position: int) -> bool:
    try:
        entries = decode_keys(data, position)
    except CorruptBatch:
        return False
    return bool(entries) and marker_of(entries[0][2]) == "abort"
