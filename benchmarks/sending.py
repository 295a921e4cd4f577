"""The cost of sending a file to two readers on the same machine: `python -m benchmarks.sending [--megabytes 500]`.

A bare loop instead of a broker. Two readers request 4 MB at a time. The loop sends them a file from the page cache
with `sendfile`, with `pread` and `send`, or with `send` from a map of the whole file, which is created before and not
counted. The file was written in pieces of 16 KB or 1 MB, which decides how the page cache stores it. The output is
the CPU time of the sender alone: the least that a broker needs per GB out.
"""

from __future__ import annotations

import argparse
import mmap
import multiprocessing
import os
import select
import socket
import tempfile
import time
from collections.abc import Callable

ASKED = 4 << 20
PIECE = 1 << 20
READERS = 2
Send = Callable[[socket.socket, int, int], int]
"""Sends at most this many bytes from a position. Returns the number of bytes sent."""


def read(address: tuple[str, int], size: int) -> None:
    """Request the whole file, 4 MB at a time, and discard it."""
    buffer = bytearray(ASKED)
    with socket.create_connection(address) as connection:
        for _ in range(size // ASKED):
            connection.sendall(b"next")
            left = ASKED
            while left:
                left -= connection.recv_into(buffer)


def write(path: str, size: int, piece: int) -> None:
    data, position = os.urandom(piece - 7), 0  # batches do not end at page boundaries
    with open(path, "wb", buffering=0) as file:
        while position < size:
            position += file.write(data)


def ways(descriptor: int) -> dict[str, Send]:
    mapped = memoryview(mmap.mmap(descriptor, 0, prot=mmap.PROT_READ))
    buffer = memoryview(bytearray(PIECE))

    def by_pread(to: socket.socket, position: int, size: int) -> int:
        return to.send(buffer[: os.preadv(descriptor, [buffer[:size]], position)])

    return {
        "sendfile": lambda to, position, size: os.sendfile(to.fileno(), descriptor, position, size),
        "pread and send": by_pread,
        "send of a map": lambda to, position, size: to.send(mapped[position : position + size]),
    }


class Reader:
    """The remaining bytes for one reader."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.position = 0
        self.left = 0

    def serve(self, send: Send) -> bool:
        """Send what the socket accepts. Return whether that was all."""
        while self.left:
            try:
                sent = send(self.connection, self.position, min(self.left, PIECE))
            except BlockingIOError:
                return False
            self.position += sent
            self.left -= sent
        return True


def measure(send: Send, size: int) -> tuple[float, float]:
    """Return the seconds, and the CPU seconds of the sender, until both readers have the file."""
    with socket.create_server(("127.0.0.1", 0)) as listener, select.epoll() as events:
        processes = [multiprocessing.Process(target=read, args=(listener.getsockname(), size)) for _ in range(READERS)]
        for process in processes:
            process.start()
        readers: dict[int, Reader] = {}
        for _ in processes:
            connection, _ = listener.accept()
            connection.setblocking(False)
            readers[connection.fileno()] = Reader(connection)
            events.register(connection, select.EPOLLIN)
        began, busy = time.perf_counter(), time.process_time()
        while readers:
            for descriptor, event in events.poll():
                reader = readers[descriptor]
                if event & select.EPOLLIN:
                    if not reader.connection.recv(4):
                        readers.pop(descriptor).connection.close()
                        continue
                    reader.left = ASKED
                events.modify(descriptor, select.EPOLLIN if reader.serve(send) else select.EPOLLIN | select.EPOLLOUT)
        taken = time.perf_counter() - began, time.process_time() - busy
        for process in processes:
            process.join()
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the cost of sending a file to readers on this machine.")
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    size = options.megabytes * PIECE // ASKED * ASKED
    gigabytes = READERS * size / 1e9
    for piece in (16 << 10, 1 << 20):
        with tempfile.NamedTemporaryFile() as file:
            write(file.name, size, piece)
            for name, send in ways(file.fileno()).items():
                results = [measure(send, size) for _ in range(options.rounds)]
                seconds, busy = min(each[0] for each in results), min(each[1] for each in results)
                print(
                    f"written in {piece >> 10:>4} KB, {name:<14}  {busy / gigabytes:5.3f} s of processor time a GB, "
                    f"{gigabytes / seconds:4.1f} GB/s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
