"""The values that the record codec takes and gives, and the error of the byte layer.

Everything here is immutable. A field may be added to a summary; the fields of ``Record`` are the public API.
"""

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

    A header key that is not UTF-8 keeps its bytes as surrogate escapes, so that it survives a round trip.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class BatchSummary(NamedTuple):
    """What validation wants to know of the records in a batch, without an object for each of them."""

    max_timestamp: int
    """The largest timestamp, -1 in an empty batch."""
    max_timestamp_offset: int
    """The offset of the first record with that timestamp, -1 in an empty batch."""
    min_timestamp: int
    """The smallest timestamp, -1 in an empty batch."""
    keyless: int
    """How many records have no key."""
    contiguous: bool
    """Whether the offset deltas are 0, 1, 2, … up to the last offset delta of the header."""


class Scan(NamedTuple):
    """The whole, valid batches at the start of a range of bytes."""

    batches: list[tuple[int, BatchHeader]]
    end: int
    """The first byte after the last valid batch."""
    problem: str | None
    """Why the bytes at ``end`` are no batch; None when they are, or when there are none."""
    incomplete: bool
    """The bytes just ended inside a batch that had nothing wrong so far."""


@lru_cache(1 << 10)
def topic_id_of(raw: bytes) -> UUID:
    """The id that has these bytes. There are few topics, and an id is dear to make."""
    return UUID(bytes=raw)
