"""LZ4 frames of many pieces at once, by cramjam: the reference for `_lz4`, and its replacement."""

from __future__ import annotations

import struct

import cramjam

from ottla.records.buffers import Buffer

_BLOCK = 64 * 1024
_HEADER = bytes.fromhex("04224d18 60 40 82")  # version 1, independent blocks, 64 KiB, checksum of these
_LENGTH = struct.Struct("<I")
_STORED = 0x8000_0000
_END = bytes(4)


class Packer:
    """Compresses ahead in a thread that calls `run` and needs no interpreter lock until `stop`.

    Only the compiled version does this. Here nothing is ever started, and the caller compresses the frame itself.
    """

    def begin(self, buffer: bytearray, start: int, end: int) -> Packing:
        """Queue these bytes to be replaced by a frame. Until the `Packing` is withdrawn, asked for its size or deleted,
        do not access them and do not resize the buffer."""
        if not 0 <= start <= end <= len(buffer):
            raise ValueError(f"the range {start} to {end} is not in a buffer of {len(buffer)} bytes")
        return Packing()

    def run(self) -> None:
        """Compress until `stop`."""

    def stop(self) -> None:
        """Start no more frames."""


class Packing:
    """A queued frame. Deleting it withdraws it."""

    def withdraw(self) -> bool:
        """Withdraw it; True if the packer had not started, so that the bytes are unchanged."""
        return True

    def size(self) -> int:
        """Wait for the frame and return its size; 0 if the bytes are unchanged, because the frame would be longer."""
        return 0


def frames(pieces: list[Buffer], room: int) -> list[bytearray]:
    """A frame of each piece, after `room` bytes, by the fast compressor."""
    return [bytearray(room) + _frame(memoryview(piece)) for piece in pieces]


def _frame(data: memoryview) -> bytes:
    parts = [_HEADER]
    for start in range(0, len(data), _BLOCK):
        parts += _block(data[start : start + _BLOCK])
    return b"".join((*parts, _END))


def _block(data: memoryview) -> tuple[bytes, bytes]:
    packed = bytes(cramjam.lz4.compress_block(data, store_size=False))
    if len(packed) < len(data):
        return _LENGTH.pack(len(packed)), packed
    return _LENGTH.pack(len(data) | _STORED), bytes(data)
