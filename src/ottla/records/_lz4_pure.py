"""LZ4 frames of many pieces at once, by cramjam: the twin that `_lz4` is held equal to, and that serves without it."""

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
    """Makes frames ahead, in a thread that calls `run` and does without the interpreter lock until `stop`. That is the
    compiled twin's work: here nothing is ever begun, and whoever wants a frame makes it itself."""

    def begin(self, buffer: bytearray, start: int, end: int) -> Packing:
        """Put a frame of these bytes in their place when it is their turn. Nobody else may touch them, nor resize the
        buffer, until the `Packing` was asked or let go."""
        if not 0 <= start <= end <= len(buffer):
            raise ValueError(f"a buffer of {len(buffer)} bytes has no place from {start} to {end}")
        return Packing()

    def run(self) -> None:
        """Work until `stop`."""

    def stop(self) -> None:
        """Begin with nothing more."""


class Packing:
    """What a packer was given. To let go of it is to take it back."""

    def withdraw(self) -> bool:
        """Take it back: whether the packer had not begun, so that the bytes are still there."""
        return True

    def size(self) -> int:
        """How long the frame is, once it is made; 0 if the bytes are still there, because it would be longer."""
        return 0


def frames(pieces: list[Buffer], room: int) -> list[bytearray]:
    """A frame of each piece, behind so many bytes of room, made by the fast compressor."""
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
