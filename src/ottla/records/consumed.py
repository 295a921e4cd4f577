"""Records as a consumer gets them: `ConsumerRecord` and its decoder, from the kernels in use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.records._kernels import KERNELS
from ottla.records.buffers import Buffer
from ottla.records.compression import decompress
from ottla.records.errors import CorruptBatch, DecompressionError
from ottla.records.header import BATCH_OVERHEAD, COMPRESSION_MASK, BatchHeader

if TYPE_CHECKING or KERNELS == "pure":
    from ottla.records._consuming_pure import ConsumerRecord, decode_consumed
else:
    from ottla.records._speedups import ConsumerRecord, decode_consumed

__all__ = ["ConsumerRecord", "decode_consumed", "unpacked"]


def unpacked(data: Buffer, position: int, header: BatchHeader) -> Buffer:
    """The uncompressed records of the scanned batch at `position`; CorruptBatch if they are damaged."""
    records = memoryview(data)[position + BATCH_OVERHEAD : position + header.size]
    if not header.attributes & COMPRESSION_MASK:
        return records
    try:
        return decompress(header.compression, records)
    except DecompressionError as error:
        raise CorruptBatch(position, str(error)) from error
    except ValueError:
        raise CorruptBatch(position, f"compression {header.attributes & COMPRESSION_MASK} is unknown") from None
