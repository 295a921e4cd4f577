"""The immutable values of the record codec. The fields of ``Record`` are public API."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeAlias
from uuid import UUID

from ottla.records.header import BatchHeader

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

KeyEntry: TypeAlias = tuple[int, int, bytes | None, bool]
"""Offset, timestamp, key, and whether the record has a value (a record without one is a tombstone)."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record, with its absolute offset and timestamp.

    A header key that is not UTF-8 keeps its bytes as surrogate escapes, so that a round trip preserves it.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class BatchSummary(NamedTuple):
    """A summary of the records in a batch, for validation."""

    max_timestamp: int
    """The largest timestamp, -1 in an empty batch."""
    max_timestamp_offset: int
    """The offset of the first record with that timestamp, -1 in an empty batch."""
    min_timestamp: int
    """The smallest timestamp, -1 in an empty batch."""
    keyless: int
    """The number of records without a key."""
    contiguous: bool
    """Whether the offset deltas are 0, 1, 2, … up to the header's last offset delta."""


class Scan(NamedTuple):
    """The complete, valid batches at the start of a range of bytes."""

    batches: list[tuple[int, BatchHeader]]
    end: int
    """The first byte after the last valid batch."""
    problem: str | None
    """Why the bytes at ``end`` are no valid batch; None without a problem."""
    incomplete: bool
    """The bytes end inside a batch that is valid so far."""


@lru_cache(1 << 10)
def topic_id_of(raw: bytes) -> UUID:
    """The topic id with these bytes. Cached, because there are few topics and a UUID is slow to create."""
    return UUID(bytes=raw)
