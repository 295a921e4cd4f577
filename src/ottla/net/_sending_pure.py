"""Frames on many sockets: the twin of `_sending`, which lets go of the interpreter lock once for all of them."""

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
