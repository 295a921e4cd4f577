"""The choice between the two twins of the hot loops.

`_speedups` is the compiled twin, `_pure` the one in Python: the same results and the same errors.
``OTTLA_PURE=1`` takes the pure one; it also serves when the extension was not built. `KERNELS` says which.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from ottla._twins import choose
from ottla.records.buffers import Buffer
from ottla.records.header import BatchHeader
from ottla.records.values import BatchSummary, KeyEntry, Record, Scan


class Kernels(Protocol):
    """What both twins offer.

    `payload` is the uncompressed records of the batch at `position` whose header is `header`. The header has
    been checked for its shape; the payload is not trusted: whatever is in it, the only error is CorruptBatch.
    """

    def decode_records(self, payload: Buffer, header: BatchHeader, position: int) -> list[Record]: ...

    def decode_keys(self, payload: Buffer, header: BatchHeader, position: int) -> list[KeyEntry]: ...

    def summarize(self, payload: Buffer, header: BatchHeader, position: int) -> BatchSummary: ...

    def find_timestamp(
        self, payload: Buffer, header: BatchHeader, position: int, timestamp: int, min_offset: int
    ) -> tuple[int, int] | None:
        """Offset and timestamp of the first record at or above `min_offset` with at least this timestamp."""

    def encode_records(self, records: Sequence[Record], base_offset: int, base_timestamp: int) -> tuple[bytearray, int]:
        """61 bytes of room for a header with the records behind it, and the largest timestamp (or -1)."""

    def encode_pairs(self, pairs: Iterable[tuple[bytes | None, bytes | None]], timestamp: int) -> bytearray:
        """61 bytes of room for a header with a record for each key and value behind it, all of the same time."""

    def encode_commits(
        self, records: Iterable[tuple[Any, Any]], timestamp: int, key_type: type[Any], value_type: type[Any]
    ) -> bytearray | None:
        """The same for commits of offsets, as tuples of the two types, or None if there are others among the records.

        A key is group, topic, partition; a value is offset, leader epoch, metadata, commit timestamp, expire timestamp
        (-1: with another one it is not for this layout), and the UUID of the topic or None.
        """

    def make_commits(
        self,
        group_id: str,
        offsets: Iterable[tuple[Any, ...]],
        commit_timestamp: int,
        expire_timestamp: int,
        longest: int,
        types: tuple[type[Any], type[Any], type[Any]],
    ) -> list[Any] | None:
        """The records of a commit, as tuples of the types of keys, values and records; see `encode_commits`.

        An offset is topic, partition, offset, leader epoch, metadata or None, id of the topic. The result is None if a
        metadata may be longer than allowed.
        """

    def scan(self, buffer: Buffer, position: int, end: int, check_crc: bool) -> Scan: ...


kernels: Kernels
kernels, KERNELS = choose("ottla.records._speedups", "ottla.records._pure")
