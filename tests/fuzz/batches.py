"""Record batches for Produce: valid ones, and invalid ones with a correct CRC.

A wrong CRC is found first and hides other errors, so most mutations are followed by a correct CRC.
"""

from __future__ import annotations

import random
import struct
import time
import zlib
from collections.abc import Callable
from functools import cache

import cramjam
from crc32c import crc32c

from ottla.records import Compression, Record, compress, encode_batch

HEAD = 61
#: position, layout and name of the fields in the header of a batch
FIELDS = [
    (0, ">q", "base offset"), (8, ">i", "batch length"), (12, ">i", "leader epoch"), (16, ">b", "magic"),
    (21, ">h", "attributes"), (23, ">i", "last offset delta"), (27, ">q", "base timestamp"),
    (35, ">q", "max timestamp"), (43, ">q", "producer id"), (51, ">h", "producer epoch"),
    (53, ">i", "base sequence"), (57, ">i", "record count"),
]  # fmt: skip
CRC_AT, CRC_FROM = 17, 21
CODECS = list(Compression)
VARINTS = [b"\xff\xff\xff\xff\x0f", b"\xff" * 10, b"\x01", b"\x80", b"\xfe\xff\xff\xff\x0f"]
MAGICS = [b"\xff" * 8, b"\x82SNAPPY\0", b"\x04\x22\x4d\x18", b"\x28\xb5\x2f\xfd", b"\x1f\x8b\x08", b"\0" * 8]
BOMB = 256 * 1024 * 1024


def sealed(batch: bytes | bytearray, *, length: bool = True) -> bytes:
    """The batch with a correct CRC and length."""
    out = bytearray(batch)
    if len(out) >= HEAD:
        if length:
            struct.pack_into(">i", out, 8, len(out) - 12)
        struct.pack_into(">I", out, CRC_AT, crc32c(bytes(out[CRC_FROM:])))
    return bytes(out)


def valid_batch(rng: random.Random, codec: Compression | None = None) -> bytes:
    """A valid batch."""
    now = time.time_ns() // 1_000_000
    records = [
        Record(offset, now - rng.randrange(10_000), _bytes(rng, 0.9), _bytes(rng, 0.9), _headers(rng))
        for offset in range(rng.choice([1, 1, 2, 3, 20]))
    ]
    codec = rng.choice(CODECS) if codec is None else codec
    if rng.random() < 0.3:
        producer = {
            "producer_id": rng.randrange(3),
            "producer_epoch": rng.choice([0, 0, 1]),
            "base_sequence": rng.choice([0, 0, 1, 9]),
        }
        return encode_batch(records, compression=codec, **producer)
    return encode_batch(records, compression=codec)


def _bytes(rng: random.Random, there: float) -> bytes | None:
    return rng.randbytes(rng.choice([0, 1, 8, 100])) if rng.random() < there else None


def _headers(rng: random.Random) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((f"h{n}", _bytes(rng, 0.8)) for n in range(rng.choice([0, 0, 0, 1, 3])))


def any_batch(rng: random.Random) -> bytes:
    """A valid batch, or one of those below."""
    kind = rng.random()
    if kind < 0.25:
        return valid_batch(rng)
    if kind < 0.30:
        return rng.choice([b"", rng.randbytes(rng.randrange(200)), bytes(HEAD), valid_batch(rng) * 2])
    return rng.choice(_LIES)(rng)


def _lying_header(rng: random.Random) -> bytes:
    out = bytearray(valid_batch(rng))
    for _ in range(rng.choice([1, 1, 2, 3])):
        position, layout, _ = rng.choice(FIELDS)
        bits = 8 * struct.calcsize(layout)
        top = 1 << (bits - 1)
        value = rng.choice([0, -1, 1, 2, 3, top - 1, -top, rng.randrange(-top, top), rng.randrange(16)])
        struct.pack_into(layout, out, position, max(-top, min(top - 1, value)))
    return sealed(out, length=False)


def _lying_count(rng: random.Random) -> bytes:
    """Count and last offset delta agree with each other, but not with the records."""
    out = bytearray(valid_batch(rng))
    count = rng.choice([1, 2, 100, 10**6, 2**31 - 1, 0, -1])
    struct.pack_into(">i", out, 57, count)
    struct.pack_into(">i", out, 23, count - 1)
    return sealed(out)


def _lying_records(rng: random.Random) -> bytes:
    """Records with an error, compressed correctly."""
    out = bytearray(valid_batch(rng, Compression.NONE))
    records = bytearray(out[HEAD:])
    for _ in range(rng.choice([1, 1, 2, 5])):
        at = rng.randrange(len(records)) if records else 0
        kind = rng.randrange(5)
        if kind == 0 and records:
            records[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            records[at : at + 1] = rng.choice(
                [b"\xff\xff\xff\xff\x0f", b"\xff" * 10, b"\x01", b"\x80", b"\xfe\xff\xff\xff\x0f"]
            )
        elif kind == 2:
            del records[at:]
        elif kind == 3:
            records[at:at] = rng.randbytes(rng.choice([1, 3, 50]))
        else:
            records += rng.randbytes(rng.choice([1, 10]))
    return _with_payload(rng, out, bytes(records))


def _with_payload(rng: random.Random, head: bytes | bytearray, records: bytes) -> bytes:
    codec = rng.choice(CODECS)
    out = bytearray(head[:HEAD])
    struct.pack_into(">h", out, 21, codec)
    return sealed(out + compress(codec, records))


def _broken_compression(rng: random.Random) -> bytes:
    """The compressed bytes are damaged, of another codec, or not compressed at all."""
    codec = rng.choice(CODECS[1:])
    out = bytearray(valid_batch(rng, codec))
    kind = rng.randrange(5)
    if kind == 0:
        at = rng.randrange(HEAD, len(out))
        out[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del out[rng.randrange(HEAD, len(out)) :]
    elif kind == 2:
        out[HEAD:] = rng.randbytes(rng.choice([1, 10, 500]))
    elif kind == 3:
        struct.pack_into(">h", out, 21, rng.randrange(8))
    else:
        out[HEAD + rng.randrange(20) : HEAD + 20] = rng.choice(
            [b"\xff" * 8, b"\x82SNAPPY\0", b"\x04\x22\x4d\x18", b"\0" * 8]
        )
    return sealed(out)


def _cut_or_longer(rng: random.Random) -> bytes:
    out = valid_batch(rng)
    if rng.random() < 0.5:
        return out[: rng.randrange(len(out))]
    return out + rng.randbytes(rng.choice([1, 12, 61, 500]))


def _wrong_crc(rng: random.Random) -> bytes:
    out = bytearray(valid_batch(rng))
    out[rng.randrange(CRC_AT, len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


_LIES: list[Callable[[random.Random], bytes]] = [
    _lying_header, _lying_header, _lying_header, _lying_count, _lying_records, _lying_records, _lying_records,
    _broken_compression, _broken_compression, _cut_or_longer, _wrong_crc,
]  # fmt: skip


# ── too much in too little ────────────────────────────────────────────────────────────────────────────────────────


@cache
def bomb(codec: Compression) -> bytes:
    """A batch of one record whose compressed bytes decompress to 256 MiB, or say so."""
    now = time.time_ns() // 1_000_000
    head = encode_batch([Record(0, now, b"k", b"v")], compression=codec)[:HEAD]
    return sealed(head + _packed_zeros(codec))


def _packed_zeros(codec: Compression) -> bytes:
    if codec is Compression.GZIP:
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        megabyte = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
        return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + megabyte * (BOMB >> 20)
    if codec is Compression.SNAPPY:  # only a claim: the length comes first
        return b"\x80\x80\x80\x80\x01" + bytes(cramjam.snappy.compress_raw(bytes(1 << 16)))[3:]
    return bytes(compress(codec, bytes(BOMB)))


@cache
def swarm(codec: Compression, count: int) -> bytes:
    """A batch of very many empty records: small on the wire, expensive as objects."""
    parts = bytearray()
    for offset in range(count):
        delta = _zigzag(offset)
        body = b"\0\0" + delta + b"\x02k" + b"\x00" + b"\0"
        parts += _zigzag(len(body)) + body
    now = time.time_ns() // 1_000_000
    head = bytearray(encode_batch([Record(0, now, b"k", b"")], compression=codec)[:HEAD])
    struct.pack_into(">i", head, 57, count)
    struct.pack_into(">i", head, 23, count - 1)
    return sealed(head + compress(codec, bytes(parts)))


def _zigzag(value: int) -> bytes:
    value = value << 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
