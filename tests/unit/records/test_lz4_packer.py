"""Frames compressed ahead: in place, equal to frames on demand, and untouched after a withdrawal."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from test_lz4_twins import PIECES, words

from ottla.records import _lz4_pure

TWINS: list[Any] = [_lz4_pure]
try:
    from ottla.records import _lz4

    TWINS.append(_lz4)
except ImportError:
    pass

needs_thread = pytest.mark.skipif(len(TWINS) == 1, reason="only the compiled twin works ahead")
TEXT, NOISE = words(1, 50_000), random.Random(2).randbytes(50_000)
LONG = words(3, 300_000) * 100


@contextmanager
def running(packer: Any) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=packer.run, daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        packer.stop()
        thread.join(30)
        assert not thread.is_alive()


def until_done(packer: Any) -> None:
    """All earlier frames are done when the packer has started a new one."""
    while packer.begin(bytearray(LONG[:100_000]), 0, 100_000).size() == 0:
        pass


@pytest.fixture(params=TWINS, ids=lambda twin: twin.__name__.rpartition(".")[2])
def packer(request: pytest.FixtureRequest) -> Any:
    return request.param.Packer()


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.__name__.rpartition(".")[2])
@given(st.lists(PIECES, max_size=6), st.integers(0, 70))
@example([b"", TEXT, NOISE, TEXT], 61)
def test_the_bytes_are_there_or_their_frame_is(twin: Any, pieces: list[bytes], room: int) -> None:
    packer = twin.Packer()
    buffers = [bytearray(room) + piece + b"behind" for piece in pieces]
    with running(packer):
        packings = [packer.begin(buffer, room, len(buffer) - 6) for buffer in buffers]
        for packing, buffer, piece in zip(packings, buffers, pieces, strict=True):
            frame = _lz4_pure.frames([piece], 0)[0]
            size = 0 if packing.withdraw() else packing.size()
            assert size in (0, len(frame) if len(frame) <= len(piece) else 0)
            assert buffer[:room] == bytes(room)
            assert buffer[room:].startswith(frame if size else piece)
            assert buffer.endswith(b"behind")
            assert len(buffer) == room + len(piece) + 6


@needs_thread
def test_what_waits_is_packed_in_order_and_what_does_not_shrink_is_left() -> None:
    packer = _lz4.Packer()
    buffers = [bytearray(each) for each in (TEXT, NOISE, TEXT)]
    packings = [packer.begin(buffer, 0, len(buffer)) for buffer in buffers]
    assert packings[0].withdraw()
    with running(packer):
        until_done(packer)
        frame = _lz4.frames([TEXT], 0)[0]
        assert [each.withdraw() for each in packings] == [True, False, False]
        assert [each.size() for each in packings] == [0, 0, len(frame)]
    assert buffers[0] == TEXT
    assert buffers[1] == NOISE
    assert buffers[2].startswith(frame)


def test_nothing_happens_without_a_thread_or_after_its_end(packer: Any) -> None:
    buffers = [bytearray(TEXT) for _ in range(4)]
    packings = [packer.begin(buffer, 0, len(buffer)) for buffer in buffers]
    assert [packings[index].withdraw() for index in (1, 3, 0)] == [True] * 3
    packer.stop()
    packer.run()
    assert packings[1].withdraw()
    assert packings[2].size() == 0
    assert packer.begin(buffers[0], 0, 10).withdraw()
    assert all(buffer == TEXT for buffer in buffers)


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.__name__.rpartition(".")[2])
def test_letting_go_takes_it_back(twin: Any) -> None:
    for _ in range(20):
        packer = twin.Packer()
        buffers = [bytearray(TEXT) for _ in range(5)]
        with running(packer):
            packings = [packer.begin(buffer, 0, len(buffer)) for buffer in buffers]
            del packings[2]
            packings.clear()
            for buffer in buffers:
                buffer[:] = NOISE
                buffer.append(1)  # nobody holds it any more
        assert all(buffer == NOISE + b"\x01" for buffer in buffers)


@needs_thread
def test_letting_go_waits_for_what_is_begun() -> None:
    packer = _lz4.Packer()
    with running(packer):
        for seconds in (0.0, 0.001, 0.005):
            buffer = bytearray(LONG)
            packing = packer.begin(buffer, 0, len(buffer))
            threading.Event().wait(seconds)
            with pytest.raises(BufferError):
                buffer.append(1)
            del packing
            buffer[:] = bytes(10)
            assert buffer == bytes(10)


@pytest.mark.parametrize(("start", "end"), [(-1, 4), (3, 2), (0, 11), (11, 12)])
def test_a_place_that_is_not_in_the_buffer_is_refused(packer: Any, start: int, end: int) -> None:
    with pytest.raises(ValueError, match=f"the range {start} to {end} is not in a buffer of 10 bytes"):
        packer.begin(bytearray(10), start, end)


@needs_thread
@pytest.mark.parametrize("busy", [True, False], ids=["busy", "idle"])
def test_a_forked_child_can_let_go_of_everything(busy: bool) -> None:
    packer = _lz4.Packer()
    with running(packer):
        packings = [packer.begin(bytearray(LONG), 0, len(LONG)) for _ in range(3 if busy else 0)]
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            packings.clear()
            packer.stop()
            del packer
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert all(packing.size() for packing in packings if not packing.withdraw())
