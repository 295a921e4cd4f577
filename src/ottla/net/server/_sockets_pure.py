"""One system call after the other on many sockets: the twin of `_sockets`, which lets go of the interpreter lock once
for all of them."""

from __future__ import annotations

import os


def current_cpu() -> int:
    """The processor that the calling thread runs on, -1 if nobody knows."""
    return -1


def send_all(fds: list[int], frames: list[bytearray]) -> list[tuple[int, int]]:
    """Send a frame on each socket, as much of it as the socket takes now.

    Return the index of each that was not sent to its end, and how many bytes of it were: none if the socket is broken.
    """
    unsent = []
    for index, (fd, frame) in enumerate(zip(fds, frames, strict=True)):
        try:
            sent = os.write(fd, frame)
        except OSError:
            sent = 0
        if sent != len(frame):
            unsent.append((index, sent))
    return unsent


def receive_all(fds: list[int], buffer: bytearray, most: int) -> list[int]:
    """Receive from each socket what is there, at most so many bytes, one behind the other into the buffer.

    Return how many bytes came from each: 0 at its end, minus the number of the error if there was one. It ends early
    when the buffer cannot take as much as another socket may have.
    """
    counts: list[int] = []
    view, position = memoryview(buffer), 0
    for fd in fds:
        if position + most > len(buffer):
            break
        try:
            count = os.readv(fd, [view[position : position + most]])
        except OSError as error:
            count = -(error.errno or 1)
        counts.append(count)
        position += max(count, 0)
    return counts
