"""Responses on their way to a socket: bytes with ``send``, file slices with ``sendfile``."""

from __future__ import annotations

import os
from collections import deque
from typing import Protocol

from ottla.net.server.channel import Channel
from ottla.protocol.codec import Buffer

#: Up to this size it is cheaper to read a slice and send it with the bytes around it.
SMALL_SLICE = 16 * 1024
#: Buffers per system call; 16 is the minimum that systems guarantee.
MOST_PARTS = 16


class OpenFile(Protocol):
    """A file that stays open while this object is referenced."""

    @property
    def fd(self) -> int: ...


class FileSlice(Protocol):
    """A part of a file."""

    @property
    def file(self) -> OpenFile: ...

    @property
    def position(self) -> int: ...

    @property
    def length(self) -> int: ...


class _SliceToSend:
    """The unsent rest of a slice."""

    __slots__ = ("file", "length", "position")

    def __init__(self, slice_: FileSlice) -> None:
        self.file = slice_.file
        self.position = slice_.position
        self.length = slice_.length


class Outgoing:
    """The unsent data of a connection."""

    __slots__ = ("_channel", "_parts", "size")

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._parts: deque[Buffer | memoryview | _SliceToSend] = deque()
        self.size = 0
        """The number of bytes queued since everything was sent; 0 if nothing is queued."""

    def put(self, frame: Buffer) -> int:
        """Queue a frame and return its size."""
        if frame.splices:
            size = self._put_with_slices(frame)
        else:
            self._parts.append(frame)
            size = len(frame)
        self.size += size
        return size

    def _put_with_slices(self, frame: Buffer) -> int:
        total: int = sum(slice_.length for _, slice_ in frame.splices)
        if total <= SMALL_SLICE:
            whole = _inlined(frame)
            self._parts.append(whole)
            return len(whole)
        view, start = memoryview(frame), 0
        for position, slice_ in frame.splices:
            self._parts.append(view[start:position])
            if slice_.length:
                self._parts.append(_SliceToSend(slice_))
            start = position
        if start < len(frame):
            self._parts.append(view[start:])
        return len(frame) + total

    def flush(self) -> bool:
        """Send as much as the socket accepts now; return whether everything is sent. Raises OSError if it is broken."""
        parts = self._parts
        try:
            while parts:
                part = parts[0]
                if isinstance(part, _SliceToSend):
                    if self._send_slice(part):
                        parts.popleft()
                elif len(parts) == 1:
                    count = self._channel.send(part)
                    if count == len(part):
                        parts.clear()
                    else:
                        parts[0] = memoryview(part)[count:]
                else:
                    self._send_run()
            if not self._channel.is_plain:
                self._channel.flush()
        except (BlockingIOError, InterruptedError):
            return False
        self.size = 0
        return True

    def _send_run(self) -> None:
        """Send the bytes up to the next slice, or the end, with one call."""
        run: list[Buffer | memoryview] = []
        for part in self._parts:
            if isinstance(part, _SliceToSend) or len(run) == MOST_PARTS:
                break
            run.append(part)
        self._sent(self._channel.send_parts(run, more=len(run) < len(self._parts)))

    def _sent(self, count: int) -> None:
        parts = self._parts
        while count:
            part = parts[0]
            assert not isinstance(part, _SliceToSend)
            if count < len(part):
                parts[0] = memoryview(part)[count:]
                return
            count -= len(part)
            parts.popleft()

    def _send_slice(self, part: _SliceToSend) -> bool:
        sent = self._channel.send_file(part.file.fd, part.position, part.length)
        if sent == 0:
            raise OSError("the file is shorter than the slice to send")
        part.position += sent
        part.length -= sent
        return part.length == 0

    def take_frame(self) -> Buffer | None:
        """Take the queued data out if it is one whole frame without slices."""
        if len(self._parts) != 1 or not isinstance(frame := self._parts[0], Buffer):
            return None
        self.clear()
        return frame

    def put_back(self, frames: list[memoryview]) -> None:
        """Put frames from `take_frame` back to the front of the queue."""
        self._parts.extendleft(reversed(frames))
        self.size += sum(map(len, frames))

    def clear(self) -> None:
        """Drop all data and release open files."""
        self._parts.clear()
        self.size = 0


def _inlined(frame: Buffer) -> Buffer:
    out, start = Buffer(), 0
    for position, slice_ in frame.splices:
        out += memoryview(frame)[start:position]
        data = os.pread(slice_.file.fd, slice_.length, slice_.position)
        if len(data) != slice_.length:
            raise OSError("the file is shorter than the slice to send")
        out += data
        start = position
    out += memoryview(frame)[start:]
    return out
