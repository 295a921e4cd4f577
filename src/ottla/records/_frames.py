"""The upper bound of a frame's decompressed size, from its headers alone.

Both formats are a header and a list of blocks with their sizes. Reading the block headers is cheap, and finds frames
with a false content size before memory is allocated. Decompression checks the content.

An LZ4 frame, little endian:

    magic         4  04 22 4d 18
    flags         1  bit 0 dictionary id, 2 content checksum, 3 content size, 4 block checksums
    descriptor    1  bits 4-6: the largest block has 256 << 2 * n bytes
    content size  8  if flagged
    dictionary    4  if flagged
    checksum      1
    blocks           size 4 (bit 31: stored as it is), data, checksum 4 if flagged; a size of 0 ends
    checksum      4  if flagged

A Zstandard frame, little endian:

    magic         4  28 b5 2f fd
    descriptor    1  bits 0-1 size of dictionary id, 2 checksum, 5 single segment, 6-7 size of content size
    window        1  unless single segment
    dictionary    0, 1, 2 or 4
    content size  0 (1 if single segment), 2, 4 or 8
    blocks           header 3 (bit 0 last, bits 1-2 raw, run, compressed or reserved, the rest size), data
    checksum      4  if flagged
"""

from __future__ import annotations

from ottla.records.errors import DecompressionError

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_STORED = 0x8000_0000
_LZ4_MAX_RATIO = 255  # the densest element: one more length byte of a match
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = b"\x2a\x4d\x18"  # after a first byte of 50 to 5f
_ZSTD_MAX_BLOCK = 128 * 1024
_RAW, _RUN, _COMPRESSED, _RESERVED = range(4)


def lz4_bound(data: memoryview) -> int:
    """The largest possible content of the LZ4 frame in `data`; DecompressionError if the frame is incomplete."""
    if len(data) < 7 or data[:4] != _LZ4_MAGIC:
        raise DecompressionError("lz4 data is damaged: it does not start with a frame header")
    flags, largest = data[4], 256 << (2 * (data[5] >> 4 & 7))
    at = 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    trailer = 4 if flags & 0x10 else 0
    bound = 0
    while size := _little(data, at, 4, "lz4"):
        length = size & ~_LZ4_STORED
        bound += length if size & _LZ4_STORED else min(largest, length * _LZ4_MAX_RATIO)
        at += 4 + length + trailer
    return bound


def zstd_bound(data: memoryview) -> int:
    """The largest possible content of the Zstandard frames in `data`; DecompressionError if they are incomplete."""
    at = bound = 0
    while at < len(data):
        if data[at + 1 : at + 4] == _ZSTD_SKIPPABLE and data[at] >> 4 == 5:
            at += 8 + _little(data, at + 4, 4, "zstd")
        else:
            at, more = _zstd_frame(data, at)
            bound += more
    return bound


def _zstd_frame(data: memoryview, at: int) -> tuple[int, int]:
    if data[at : at + 4] != _ZSTD_MAGIC:
        raise DecompressionError("zstd data is damaged: a frame does not start with the magic number")
    descriptor = _little(data, at + 4, 1, "zstd")
    at = _zstd_blocks_start(at, descriptor)
    bound = last = 0
    while not last:
        block = _little(data, at, 3, "zstd")
        last, kind, size = block & 1, block >> 1 & 3, block >> 3
        bound += min(_ZSTD_MAX_BLOCK, _ZSTD_MAX_BLOCK if kind == _COMPRESSED else size)
        at += 3 + (1 if kind == _RUN else size)
    return at + (4 if descriptor & 0x04 else 0), bound


def _zstd_blocks_start(at: int, descriptor: int) -> int:
    single_segment = descriptor >> 5 & 1
    dictionary_id = (0, 1, 2, 4)[descriptor & 3]
    content_size = (single_segment, 2, 4, 8)[descriptor >> 6]
    return at + 5 + (1 - single_segment) + dictionary_id + content_size


def _little(data: memoryview, at: int, size: int, codec: str) -> int:
    if at + size > len(data):
        raise DecompressionError(f"{codec} data is damaged: it ends early")
    return int.from_bytes(data[at : at + size], "little")
