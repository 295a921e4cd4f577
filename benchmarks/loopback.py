"""The cost of the loopback interface itself: `python -m benchmarks.loopback [--megabytes 400]`.

The bytes of a benchmark go between two processes that do nothing else. No client or broker can be faster on this
machine. "in" is a loop of `send` to a loop of `recv_into`, a CRC and a write to the page cache, as in a broker. "out"
is a loop of `sendfile` to a loop of `recv_into` and a CRC, as in a client. CPU time is the sum of both processes.
"""

from __future__ import annotations

import argparse
import os
import resource
import socket
import tempfile
import time

from crc32c import crc32c

PIECE = 1024 * 1024


def receive(listener: socket.socket, pieces: int, path: str | None) -> None:
    """Receive the pieces, check them, write them to an optional file, and confirm the end."""
    connection, _ = listener.accept()
    view = memoryview(bytearray(PIECE))
    output = os.open(path, os.O_CREAT | os.O_WRONLY) if path is not None else None
    for _ in range(pieces):
        filled = 0
        while filled < PIECE:
            filled += connection.recv_into(view[filled:])
        crc32c(view)
        if output is not None:
            os.write(output, view)
    connection.sendall(b"x")


def measure(pieces: int, directory: str, *, inwards: bool) -> tuple[float, float]:
    """Return the seconds and CPU seconds for all pieces."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        child = os.fork()
        if not child:
            receive(listener, pieces, os.path.join(directory, "in") if inwards else None)
            os._exit(0)
        source = os.path.join(directory, "out")
        with open(source, "wb") as file:
            file.write(os.urandom(PIECE))
        with socket.create_connection(listener.getsockname()) as connection, open(source, "rb") as file:
            piece = file.read()
            before = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
            began = time.perf_counter()
            for _ in range(pieces):
                if inwards:
                    connection.sendall(piece)
                    continue
                sent = 0
                while sent < PIECE:
                    sent += os.sendfile(connection.fileno(), file.fileno(), sent, PIECE - sent)
            connection.recv(1)
            seconds = time.perf_counter() - began
        os.waitpid(child, 0)
        after = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        busy = sum(one.ru_utime + one.ru_stime for one in after) - sum(one.ru_utime + one.ru_stime for one in before)
    return seconds, busy


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the cost of the loopback interface and the page cache.")
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    gigabytes = options.megabytes * PIECE / 1e9
    for name, inwards in (("in", True), ("out", False)):
        results = []
        for _ in range(options.rounds):
            with tempfile.TemporaryDirectory() as directory:
                results.append(measure(options.megabytes, directory, inwards=inwards))
        seconds, busy = min(each[0] for each in results), min(each[1] for each in results)
        rate = gigabytes / seconds
        print(f"{name:<4} {rate:5.2f} GB/s, {busy / gigabytes:5.2f} s of processor time a GB", flush=True)
        print(f"     at most {rate * 1e7:,.0f} records/s of 100 B, {rate * 1e6:,.0f} of 1 KB")


if __name__ == "__main__":
    main()
