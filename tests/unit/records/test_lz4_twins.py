"""LZ4 frames: both kernels write the same bytes, and other libraries read them."""

from __future__ import annotations

import random

import cramjam
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.records import _lz4_pure

_lz4 = pytest.importorskip("ottla.records._lz4")

BLOCK = 64 * 1024


def words(seed: int, size: int) -> bytes:
    dice = random.Random(seed)
    known = [dice.randbytes(dice.randrange(1, 12)) for _ in range(dice.choice((2, 30, 3000)))]
    made = bytearray()
    while len(made) < size:
        made += dice.choice(known)
    return bytes(made[:size])


PIECES = st.one_of(
    st.binary(max_size=60),
    st.tuples(st.binary(max_size=30), st.integers(0, 8000)).map(lambda given: given[0] * given[1]),
    st.builds(words, st.integers(0), st.integers(0, 3 * BLOCK)),
    st.builds(lambda seed, size: random.Random(seed).randbytes(size), st.integers(0), st.integers(0, 2 * BLOCK)),
)


@settings(max_examples=200)
@given(st.lists(PIECES, max_size=4), st.integers(0, 70))
@example([], 0)
@example([b"", bytes(BLOCK), bytes(BLOCK + 1), bytes(12), bytes(13)], 61)
def test_the_same_bytes(pieces: list[bytes], room: int) -> None:
    made = _lz4.frames([memoryview(piece) for piece in pieces], room)
    assert made == _lz4_pure.frames(pieces, room)
    for piece, frame in zip(pieces, made, strict=True):
        assert frame[:room] == bytes(room)
        assert bytes(cramjam.lz4.decompress(frame[room:])) == piece


@pytest.mark.parametrize("size", [*range(40), 254, 255, 256, 269, 270, 271, BLOCK - 1, BLOCK, BLOCK + 1])
def test_every_length_of_literals_and_matches(size: int) -> None:
    for data in (words(1, size), random.Random(2).randbytes(size), b"start" + bytes(size) + b"between" + bytes(size)):
        assert _lz4.frames([data], 0) == _lz4_pure.frames([data], 0)


def test_what_is_no_buffer_is_refused_and_the_others_are_let_go() -> None:
    data = bytearray(b"some data")
    with pytest.raises(TypeError):
        _lz4.frames([data, "text"], 0)
    data += b", which can grow again"
