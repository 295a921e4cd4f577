"""Mutations of a request: wrong lengths, extreme numbers, lost and repeated pieces, flipped bytes."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

from .requests import Piece, joined, uvarint

LENGTHS = [0, 1, 2, 126, 127, 128, 255, 1000, 32767, 65535, 2**20, 2**31 - 2, 2**31 - 1]
OVERLONG = [
    b"\xff" * 5,
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x00",
    b"\xff" * 10,
    b"\x80",
    b"\xfe\xff\xff\xff\x7f",
]
BROKEN_TEXT = [b"\xff\xfe", b"\xc3(", b"\xed\xa0\x80", b"\0" * 20, b"a" * 32767, b"\xf8\x88\x80\x80\x80"]


def _lie_in_a_length(rng: random.Random, pieces: list[Piece]) -> None:
    at = _find(rng, pieces, "length")
    if at is None:
        return
    piece = pieces[at]
    if piece.flexible:
        data = rng.choice([uvarint(rng.choice(LENGTHS)), rng.choice(OVERLONG), uvarint(max(0, piece.data[0] + 1))])
    else:
        layout = ">h" if len(piece.data) == 2 else ">i"
        limit = 2 ** (8 * len(piece.data) - 1)
        near = struct.unpack(layout, piece.data)[0] + rng.choice([-1, 1, 5])
        value = rng.choice([-1, -2, -limit, limit - 1, near, rng.choice(LENGTHS)])
        data = struct.pack(layout, max(-limit, min(limit - 1, value)))
    pieces[at] = piece._replace(data=data)


def _extreme_number(rng: random.Random, pieces: list[Piece]) -> None:
    at = _find(rng, pieces, "fixed")
    if at is not None:
        size = len(pieces[at].data)
        extremes = [bytes(size), b"\xff" * size, b"\x7f" + b"\xff" * (size - 1), b"\x80" + bytes(size - 1)]
        pieces[at] = pieces[at]._replace(data=rng.choice([*extremes, rng.randbytes(size)]))


def _break_data(rng: random.Random, pieces: list[Piece]) -> None:
    at = _find(rng, pieces, "data")
    if at is not None:
        size = len(pieces[at].data)
        data = rng.choice([rng.choice(BROKEN_TEXT), rng.randbytes(size), rng.choice(BROKEN_TEXT)[:size].ljust(size)])
        pieces[at] = pieces[at]._replace(data=data)


def _drop(rng: random.Random, pieces: list[Piece]) -> None:
    if pieces:
        del pieces[rng.randrange(len(pieces))]


def _double(rng: random.Random, pieces: list[Piece]) -> None:
    if pieces:
        at = rng.randrange(len(pieces))
        pieces[at:at] = pieces[at : at + rng.randint(1, 12)] * rng.choice([1, 1, 2, 50])


def _swap(rng: random.Random, pieces: list[Piece]) -> None:
    if len(pieces) > 1:
        a, b = rng.sample(range(len(pieces)), 2)
        pieces[a], pieces[b] = pieces[b], pieces[a]


def _unknown_tags(rng: random.Random, pieces: list[Piece]) -> None:
    """Replace an empty tag section, or what looks like one, by unknown tags."""
    at = [n for n, piece in enumerate(pieces) if piece.flexible and piece.data == b"\0"]
    if not at:
        return
    data = b""
    count = rng.choice([1, 1, 2, 100])
    for _ in range(count):
        size = rng.choice([0, 1, 5, 200])
        claimed = size if rng.random() < 0.7 else rng.choice(LENGTHS)
        data += uvarint(rng.choice([0, 1, 2, 7, 2**31 - 1])) + uvarint(claimed) + rng.randbytes(size)
    pieces[rng.choice(at)] = Piece("length", uvarint(count) + data, True)


PIECE_MUTATIONS: list[Callable[[random.Random, list[Piece]], None]] = [
    _lie_in_a_length, _lie_in_a_length, _lie_in_a_length, _extreme_number, _extreme_number, _break_data, _drop, _double,
    _swap, _unknown_tags,
]  # fmt: skip


def _find(rng: random.Random, pieces: list[Piece], kind: str) -> int | None:
    found = [number for number, piece in enumerate(pieces) if piece.kind == kind]
    return rng.choice(found) if found else None


def mutated(rng: random.Random, pieces: list[Piece]) -> bytes:
    """The bytes of a request after one to four mutations of its pieces."""
    pieces = list(pieces)
    for _ in range(rng.choice([1, 1, 1, 2, 2, 4])):
        rng.choice(PIECE_MUTATIONS)(rng, pieces)
    return joined(pieces)


def mangled(rng: random.Random, data: bytes) -> bytes:
    """Bytes after random changes."""
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 3, 8])):
        at = rng.randrange(len(out) + 1)
        kind = rng.randrange(7)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and at < len(out):
            out[at] = rng.choice([0, 0xFF, 0x7F, 0x80, 1, rng.randrange(256)])
        elif kind == 2:
            del out[at:]
        elif kind == 3:
            del out[at : at + rng.choice([1, 1, 2, 4, 30])]
        elif kind == 4:
            out[at:at] = rng.randbytes(rng.choice([1, 1, 2, 4, 100]))
        elif kind == 5:
            out[at : at + 4] = struct.pack(">i", rng.choice([-1, -(2**31), 2**31 - 1, 0, 65536]))
        else:
            out += rng.randbytes(rng.choice([1, 4, 1000]))
    return bytes(out)
