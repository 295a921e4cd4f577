"""The aborted transactions of a segment (`.txnindex`), and the control records that end transactions.

An entry of the file, as in Kafka (big endian, 34 bytes):

    version (2) = 0, producer id (8), first offset (8), last offset (8), last stable offset (8)

The file exists only for segments in which a transaction was aborted.
"""

from __future__ import annotations

import os
import struct
from typing import NamedTuple

from ottla.records import BatchHeader, Buffer, CorruptBatch, Record, decode_batch, encode_batch
from ottla.storage.files import TXN_INDEX, file_name, remove_files
from ottla.storage.producers import Marker
from ottla.types import Millis

_ENTRY = struct.Struct(">hqqqq")
_CONTROL_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")
_ABORT, _COMMIT = 0, 1


class AbortedTransaction(NamedTuple):
    """An aborted transaction; `last_stable_offset` is the last stable offset after its marker was written."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def transaction_index_path(directory: str, base_offset: int) -> str:
    return os.path.join(directory, file_name(base_offset, TXN_INDEX))


def append_aborted(path: str, aborted: AbortedTransaction) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        os.write(descriptor, _ENTRY.pack(0, *aborted))
    finally:
        os.close(descriptor)


def read_aborted(path: str) -> list[AbortedTransaction]:
    """The entries of a transaction index, without an incomplete last one."""
    try:
        with open(path, "rb", buffering=0) as file:
            data = file.read()
    except FileNotFoundError:
        return []
    whole = len(data) - len(data) % _ENTRY.size
    return [AbortedTransaction(*fields) for _, *fields in _ENTRY.iter_unpack(data[:whole])]


def replace_aborted(path: str, entries: list[AbortedTransaction]) -> None:
    """Rewrite the index; without entries there is no file."""
    remove_files([path])
    for entry in entries:
        append_aborted(path, entry)


def marker_batch(
    producer_id: int, producer_epoch: int, *, committed: bool, coordinator_epoch: int, timestamp: Millis
) -> bytearray:
    """The control batch that ends a producer's transaction in a partition."""
    key = _CONTROL_KEY.pack(0, _COMMIT if committed else _ABORT)
    record = Record(0, timestamp, key, _MARKER_VALUE.pack(0, coordinator_epoch))
    batch = encode_batch(
        [record], producer_id=producer_id, producer_epoch=producer_epoch, transactional=True, control=True
    )
    return bytearray(batch)


def read_marker(buffer: Buffer, position: int, header: BatchHeader) -> Marker | None:
    """The transaction marker in the control batch at `position`; None if it is of another kind, or empty."""
    records = decode_batch(buffer, position)
    if not records:
        return None
    key, value = records[0].key or b"", records[0].value or b""
    if len(key) < _CONTROL_KEY.size:
        raise CorruptBatch(position, "the key of the control record is too short")
    kind = _CONTROL_KEY.unpack_from(key)[1]
    if kind not in (_ABORT, _COMMIT):
        return None
    if len(value) < _MARKER_VALUE.size:
        raise CorruptBatch(position, "the value of the transaction marker is too short")
    return Marker(_MARKER_VALUE.unpack_from(value)[1], kind == _ABORT, records[0].timestamp)
