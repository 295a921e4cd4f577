"""Send and receive on many sockets, one system call each. Twin of `_sockets`, which releases the GIL once for all."""

from __future__ import annotations

import os


def current_cpu() -> int:
    """Return the processor that the calling thread runs on, or -1 if unknown."""
    return -1


def send_all(fds: list[int], frames: list[bytearray]) -> list[tuple[int, int]]:
    """Send a frame on each socket, as much of it as the socket accepts now.

    Return the index of each incomplete frame and the bytes sent of it: 0 if the socket is broken.
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
    """Receive available bytes from each socket, at most ``most`` each, one after the other into the buffer.

    Return the number of bytes from each: 0 at its end, the negative errno after an error. Stops early when the buffer
    has less than ``most`` bytes left.
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
