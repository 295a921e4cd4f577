"""The framing of a client connection: cut the byte stream into frames by their 4-byte sizes.

Small responses share a buffer and are copied out of it once. A large response gets its own memory, and the socket
writes into it directly: the records of a Fetch response are views of that memory, without another copy.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Protocol

SHARED_BYTES = 64 * 1024
LARGE_BYTES = SHARED_BYTES // 2
KEPT_BUFFERS = 8
KEPT_BYTES = 32 * 1024 * 1024

Frame = bytes | memoryview


class Receiver(Protocol):
    """The receiver of the frames: a `Connection`."""

    def frame_received(self, frame: Frame) -> None: ...

    def bad_frame(self, start: bytes) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, error: Exception | None) -> None: ...


def _references(kept: list[bytearray], index: int) -> int:
    return sys.getrefcount(kept[index])


# The reference count of a buffer that only the list holds. Without CPython's counts no buffer is reused.
_COUNTS = sys.implementation.name == "cpython" and getattr(sys, "_is_gil_enabled", lambda: True)()
_ALONE = _references([bytearray()], 0) if _COUNTS else -1


class FrameMemory:
    """Memory for large frames, reused when the previous frame is no longer referenced.

    A new bytearray is filled with zeros in new pages, which costs as much as receiving into it. While a view of a frame
    exists, its memory is not reused.

    >>> memory = FrameMemory()
    >>> frame = memory.take(100_000); first = id(frame.obj); del frame
    >>> id(memory.take(90_000).obj) == first
    True
    """

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: list[bytearray] = []

    def take(self, size: int) -> memoryview:
        kept = self._kept
        for index in range(len(kept)):
            if size <= len(kept[index]) <= 4 * size + SHARED_BYTES and _references(kept, index) == _ALONE:
                return memoryview(kept[index])[:size]
        # A little more than needed, so that the next frame of about this size fits too.
        step = max(SHARED_BYTES, 1 << max(size.bit_length() - 4, 0))
        buffer = bytearray(-(-size // step) * step)
        self._keep(buffer)
        return memoryview(buffer)[:size]

    def _keep(self, buffer: bytearray) -> None:
        kept = self._kept
        kept.append(buffer)
        while kept and (len(kept) > KEPT_BUFFERS or sum(map(len, kept)) > KEPT_BYTES):
            del kept[0]


class Frames(asyncio.BufferedProtocol):
    """Cuts the stream into frames for a `Receiver`."""

    def __init__(self, receiver: Receiver, max_bytes: int) -> None:
        self._receiver = receiver
        self._max_bytes = max_bytes
        self._buffer = bytearray(SHARED_BYTES)
        self._end = 0
        self._memory = FrameMemory()
        self._frame: memoryview | None = None
        self._filled = 0

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frame is not None:
            return self._frame[self._filled :]
        return memoryview(self._buffer)[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._frame is None:
            self._end += nbytes
            self._cut()
            return
        self._filled += nbytes
        if self._filled == len(self._frame):
            frame, self._frame = self._frame, None
            self._receiver.frame_received(frame)

    def _cut(self) -> None:
        start, view = 0, memoryview(self._buffer)
        while self._end - start >= 4:
            size = int.from_bytes(view[start : start + 4], "big", signed=True)
            if not 4 <= size <= self._max_bytes:
                self._receiver.bad_frame(bytes(view[start : self._end]))
                start = self._end
                break
            body = start + 4
            if self._end - body < size:
                if size > LARGE_BYTES:
                    self._begin_large(view[body : self._end], size)
                    start = self._end
                break
            start = body + size
            self._receiver.frame_received(bytes(view[body:start]))
        rest = self._end - start
        if start and rest:
            view[:rest] = bytes(view[start : self._end])
        self._end = rest

    def _begin_large(self, received: memoryview, size: int) -> None:
        self._frame = self._memory.take(size)
        self._filled = len(received)
        self._frame[: self._filled] = received

    def pause_writing(self) -> None:
        self._receiver.pause_writing()

    def resume_writing(self) -> None:
        self._receiver.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._receiver.connection_lost(exc)
