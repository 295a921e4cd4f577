"""Read lines from standard input in a thread, because a terminal or pipe may block."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator

from ottla.clients.jsonlines import BadLine

CHUNK_BYTES = 256 * 1024
MAX_LINE_BYTES = 64 * 1024 * 1024
_CHUNKS_AHEAD = 4


async def chunks(fd: int) -> AsyncIterator[bytes]:
    """Read a file descriptor to its end, a few chunks ahead."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(_CHUNKS_AHEAD)

    def read() -> None:
        data: bytes | OSError = b"more"
        while data and not isinstance(data, OSError):
            room.acquire()
            try:
                data = os.read(fd, CHUNK_BYTES)
            except OSError as error:
                data = error
            try:
                loop.call_soon_threadsafe(queue.put_nowait, data)
            except RuntimeError:  # the loop is closed
                return

    # A daemon thread, because a read from a terminal returns only after the next key press.
    threading.Thread(target=read, name="stdin", daemon=True).start()
    while data := await queue.get():
        if isinstance(data, OSError):
            raise data
        yield data
        room.release()


async def lines(fd: int) -> AsyncIterator[list[bytes]]:
    """Lines without their newlines, one list per read; the last line may lack a newline."""
    rest: list[bytes] = []
    waiting = count = 0
    async for data in chunks(fd):
        head, newline, tail = data.rpartition(b"\n")
        if newline:
            found = b"".join([*rest, head]).split(b"\n")
            count += len(found)
            rest, waiting = [], 0
            yield found
        if tail:
            rest.append(tail)
            waiting += len(tail)
        if waiting > MAX_LINE_BYTES:
            raise BadLine(f"line {count + 1} is longer than {MAX_LINE_BYTES:,} bytes")
    if rest:
        yield [b"".join(rest)]
