"""Record batches, magic 2: the bytes that producers send, the log stores and consumers fetch.

header.py       the header of a batch: layout, attribute bits, checks, the fields that the broker sets
codec.py        whole batches: encode, decode, scan, summarize
compression.py  gzip, snappy, lz4, zstd with bounded output
columns.py      records to and from buffers in Arrow's layout; arrow.py converts them to pyarrow
consumed.py     records as a consumer gets them
builder.py      the producer's work for each record: growing batches, futures, the fast path of `send`
packed.py       offset commits as bytes, from the request to the batch
values.py       Record and other values
_kernels.py     chooses `_speedups` (Cython) or `_pure` for the hot loops; the C files share _bytes.pxi
"""

from ottla.records._kernels import KERNELS, kernels
from ottla.records.buffers import Buffer
from ottla.records.codec import (
    decode_batch,
    decode_keys,
    encode_batch,
    encode_commits,
    encode_pairs,
    find_timestamp,
    scan,
    summarize,
)
from ottla.records.compression import LEVELS, MAX_DECOMPRESSED, Compression, compress, decompress
from ottla.records.errors import CorruptBatch, DecompressionError
from ottla.records.header import (
    BATCH_OVERHEAD,
    COMPRESSION_MASK,
    CONTROL,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL,
    BatchHeader,
    check_batch,
    read_header,
    stamp,
    stamp_log_append_time,
)
from ottla.records.packed import PackedCommits, encode_packed, join_commits, pack_commits
from ottla.records.values import BatchSummary, Headers, KeyEntry, Record, Scan

make_commits = kernels.make_commits

__all__ = [
    "BATCH_OVERHEAD",
    "COMPRESSION_MASK",
    "CONTROL",
    "KERNELS",
    "LEVELS",
    "LOG_APPEND_TIME",
    "LOG_OVERHEAD",
    "MAGIC",
    "MAGIC_AT",
    "MAX_DECOMPRESSED",
    "TRANSACTIONAL",
    "BatchHeader",
    "BatchSummary",
    "Buffer",
    "Compression",
    "CorruptBatch",
    "DecompressionError",
    "Headers",
    "KeyEntry",
    "PackedCommits",
    "Record",
    "Scan",
    "check_batch",
    "compress",
    "decode_batch",
    "decode_keys",
    "decompress",
    "encode_batch",
    "encode_commits",
    "encode_packed",
    "encode_pairs",
    "find_timestamp",
    "join_commits",
    "make_commits",
    "pack_commits",
    "read_header",
    "scan",
    "stamp",
    "stamp_log_append_time",
    "summarize",
]
