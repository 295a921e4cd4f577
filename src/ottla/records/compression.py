"""The compression codecs of record batches.

    gzip    RFC 1952, one or more members
    snappy  written in the xerial framing below; raw snappy blocks (librdkafka) can be read too
    lz4     the frame format with independent 64 KiB blocks (the Java client rejects linked ones); every valid frame
            can be read
    zstd    one or more frames

The xerial framing, big endian: magic ``82 "SNAPPY" 00``, version int32 (1), lowest compatible version int32
(1), then for every 32 KiB of input: length int32, a raw snappy block.

The output never takes more than `max_size` bytes of memory, whatever the input says. If a codec's headers bound the
output, they are checked before decompression.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

import cramjam

from ottla._twins import choose
from ottla.records._frames import lz4_bound, zstd_bound
from ottla.records.buffers import Buffer
from ottla.records.errors import DecompressionError

if TYPE_CHECKING:
    from ottla.records._lz4_pure import Packer, Packing, frames
else:
    _lz4, _ = choose("ottla.records._lz4", "ottla.records._lz4_pure")
    Packer, Packing, frames = _lz4.Packer, _lz4.Packing, _lz4.frames

__all__ = [
    "LEVELS",
    "MAX_DECOMPRESSED",
    "Compression",
    "Packer",
    "Packing",
    "compress",
    "compress_all",
    "decompress",
    "packs_ahead",
    "too_large",
]

MAX_DECOMPRESSED = 128 * 1024 * 1024
"""The default limit of a batch's decompressed size; a broker's default limit of a request is the same."""

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 * 1024
_XERIAL_LENGTH = struct.Struct(">I")

_LZ4_KAFKA_DEFAULT = 9

_GZIP_MAX_MEMBERS = 64  # writers create one; each further one costs a copy of the rest
_SNAPPY_MAX_RATIO = 22  # the densest element takes 3 bytes and copies 64


class Compression(IntEnum):
    """Kafka's codes, in the lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


LEVELS = {
    Compression.GZIP: (1, 9, 6),
    Compression.LZ4: (1, 17, _LZ4_KAFKA_DEFAULT),
    Compression.ZSTD: (-131072, 22, 3),
}
"""Lowest, highest and default level, as in Kafka; for gzip, -1 is the default too."""


class _Codec(Protocol):
    def decompress(self, data: Buffer) -> cramjam.Buffer: ...
    def decompress_into(self, data: Buffer, output: bytearray) -> int: ...


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """`data` in `codec`'s format. `level` is Kafka's; ValueError if it is out of range."""
    return bytes(compress_all(codec, [data], level)[0])


def packs_ahead(codec: Compression, level: int | None) -> bool:
    """Whether a `Packer` gives the same bytes as `compress_all`."""
    return codec is Compression.LZ4 and _level(codec, level) == _LZ4_KAFKA_DEFAULT


def compress_all(codec: Compression, pieces: list[Buffer], level: int | None = None, room: int = 0) -> list[bytearray]:
    """Each of the pieces in `codec`'s format, after `room` bytes for a header."""
    if packs_ahead(codec, level):
        return frames(pieces, room)
    chosen = _level(codec, level) if codec in LEVELS else 0
    return [bytearray(room) + _COMPRESSORS[codec](piece, chosen) for piece in pieces]


def decompress(codec: Compression, data: Buffer, max_size: int | None = None) -> bytes:
    """Decompress `data`; DecompressionError if it is damaged or has more than `max_size` bytes."""
    limit = MAX_DECOMPRESSED if max_size is None else max_size
    if codec is Compression.NONE:
        if len(data) > limit:
            raise too_large(limit)
        return bytes(data)
    try:
        return _DECOMPRESSORS[codec](data, limit)
    except (cramjam.DecompressionError, zlib.error) as error:
        raise DecompressionError(f"{codec.name.lower()} data is damaged: {error}") from error


def too_large(limit: int) -> DecompressionError:
    return DecompressionError(f"the data decompresses to more than the limit of {limit} bytes")


def _level(codec: Compression, level: int | None) -> int:
    lowest, highest, default = LEVELS[codec]
    if level is None or (codec is Compression.GZIP and level == -1):
        return default
    if not lowest <= level <= highest:
        raise ValueError(f"{codec.name.lower()} level must be from {lowest} to {highest}, not {level}")
    return level


def _compress_none(data: Buffer, level: int) -> Buffer:
    return data


def _compress_gzip(data: Buffer, level: int) -> Buffer:
    return zlib.compress(data, level, wbits=31)


def _compress_zstd(data: Buffer, level: int) -> Buffer:
    return memoryview(cramjam.zstd.compress(data, level=level))


def _compress_snappy(data: Buffer, level: int) -> Buffer:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        parts += (_XERIAL_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _compress_lz4(data: Buffer, level: int) -> Buffer:
    """As in Kafka, the default level is the fast compressor (`frames`); all other levels use this one."""
    high = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    high.compress(bytes(data))
    return memoryview(high.finish())


def _decompress_gzip(data: Buffer, limit: int) -> bytes:
    parts: list[bytes] = []
    room = limit
    rest = bytes(data)
    while rest or not parts:
        if len(parts) == _GZIP_MAX_MEMBERS:
            raise DecompressionError(f"gzip data has more than {_GZIP_MAX_MEMBERS} members")
        member = zlib.decompressobj(wbits=31)
        parts.append(member.decompress(rest, room + 1))
        room -= len(parts[-1])
        if room < 0:
            raise too_large(limit)
        if not member.eof:
            raise DecompressionError("gzip data is damaged: it ends early")
        rest = member.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _decompress_snappy(data: Buffer, limit: int) -> bytes:
    view = memoryview(data)
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _snappy_block(view, limit, limit)
    parts: list[bytes] = []
    room = limit
    at = len(_XERIAL_HEADER)
    if len(view) < at:
        raise DecompressionError("snappy data is damaged: it ends inside the header")
    while at < len(view):
        if len(view) - at < 4 or (end := at + 4 + _XERIAL_LENGTH.unpack_from(view, at)[0]) > len(view):
            raise DecompressionError("snappy data is damaged: it ends inside a block")
        parts.append(_snappy_block(view[at + 4 : end], room, limit))
        room -= len(parts[-1])
        at = end
    return b"".join(parts)


def _snappy_block(block: memoryview, room: int, limit: int) -> bytes:
    size: int = cramjam.snappy.decompress_raw_len(block)
    if size > len(block) * _SNAPPY_MAX_RATIO:
        raise DecompressionError(f"snappy data is damaged: {len(block)} bytes cannot hold {size}")
    if size > room:
        raise too_large(limit)
    return bytes(cramjam.snappy.decompress_raw(block))


def _decompress_lz4(data: Buffer, limit: int) -> bytes:
    return _bounded(cramjam.lz4, data, lz4_bound(memoryview(data)), limit)


def _decompress_zstd(data: Buffer, limit: int) -> bytes:
    return _bounded(cramjam.zstd, data, zstd_bound(memoryview(data)), limit)


def _bounded(codec: _Codec, data: Buffer, bound: int, limit: int) -> bytes:
    """Decompress without a limit if the bound from the headers allows it, else into a buffer of the limit."""
    if bound <= limit:
        return bytes(codec.decompress(data))
    output = bytearray(limit)
    try:
        size = codec.decompress_into(data, output)
    except cramjam.DecompressionError as error:
        raise DecompressionError(f"the data is damaged or decompresses to more than {limit} bytes") from error
    return bytes(memoryview(output)[:size])


_COMPRESSORS: dict[Compression, Callable[[Buffer, int], Buffer]] = {
    Compression.NONE: _compress_none,
    Compression.GZIP: _compress_gzip,
    Compression.SNAPPY: _compress_snappy,
    Compression.LZ4: _compress_lz4,
    Compression.ZSTD: _compress_zstd,
}
_DECOMPRESSORS: dict[Compression, Callable[[Buffer, int], bytes]] = {
    Compression.GZIP: _decompress_gzip,
    Compression.SNAPPY: _decompress_snappy,
    Compression.LZ4: _decompress_lz4,
    Compression.ZSTD: _decompress_zstd,
}
