"""What it costs to send a file to two readers on the same machine: `python -m benchmarks.sending [--megabytes 500]`.

A bare loop instead of a broker: it waits for two readers that ask for 4 MB at a time and sends them a file from the
page cache, by `sendfile`, by `pread` and `send`, or by `send` out of a map of the whole file, which is made before and
costs nothing here. The file was written in pieces of 16 KB or of 1 MB, since that decides how the page cache holds it.
What is printed is the processor time of the sender alone: the least that a broker can take for a GB on the way out.
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
"""Send from a position at most so many bytes; how many went."""


def read(address: tuple[str, int], size: int) -> None:
    """Ask for the whole file, 4 MB at a time, and forget it."""
    buffer = bytearray(ASKED)
    with socket.create_connection(address) as connection:
        for _ in range(size // ASKED):
            connection.sendall(b"next")
            left = ASKED
            while left:
                left -= connection.recv_into(buffer)


def write(path: str, size: int, piece: int) -> None:
    data, position = os.urandom(piece - 7), 0  # batches do not end where pages do
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
    """What is left to send to one reader."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.position = 0
        self.left = 0

    def serve(self, send: Send) -> bool:
        """Send what the socket takes; return whether that was all."""
        while self.left:
            try:
                sent = send(self.connection, self.position, min(self.left, PIECE))
            except BlockingIOError:
                return False
            self.position += sent
            self.left -= sent
        return True


def measure(send: Send, size: int) -> tuple[float, float]:
    """Seconds, and processor seconds of the sender, until both readers have all of it."""
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
    parser = argparse.ArgumentParser(description="What sending a file to readers on the same machine costs by itself.")
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
