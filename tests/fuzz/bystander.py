"""A client with a process of its own, which produces one record after the other and measures each response.

    with Bystander(port) as bystander:
        attack()
        print(bystander.waits())

It has its own process because a thread beside an attack would measure how long it waits for Python's lock.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from typing import NamedTuple, Self

from tests.wire import Wire

from ottla.protocol.apis import ApiKey

from .live import DEADLINE, Broken, good_batch, produce

TOPIC = "bystander"
PAUSE = 0.01


class Waits(NamedTuple):
    """How long responses took, in seconds."""

    p50: float
    p99: float
    longest: float

    def __str__(self) -> str:
        return "{:.1f} ms (p50), {:.1f} ms (p99), {:.0f} ms at most".format(*(1000 * each for each in self))


class Bystander:
    """The process. `waits` covers the time since it was last called."""

    def __init__(self, port: int) -> None:
        command = [sys.executable, "-m", "tests.fuzz.bystander", str(port)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def waits(self) -> Waits:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
            found = sorted(json.loads(self._process.stdout.readline()))
        except (BrokenPipeError, json.JSONDecodeError):
            raise Broken(f"a client that behaves well got no answer within {DEADLINE:g} s") from None
        return Waits(found[len(found) // 2], found[int(len(found) * 0.99)], found[-1])


def main(port: int) -> None:
    waits: list[float] = []
    asked = threading.Event()
    ended = threading.Event()

    def listen() -> None:
        for _ in sys.stdin:
            asked.set()
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    batch = good_batch(0)
    with Wire(port, timeout=DEADLINE) as wire:
        wire.call(ApiKey.METADATA, 8, {"topics": [{"name": TOPIC}], "allow_auto_topic_creation": True})
        last = time.monotonic()
        while not ended.wait(PAUSE):
            begin = time.monotonic()
            if produce(wire, TOPIC, batch).error_code == 0:
                last = time.monotonic()
                waits.append(last - begin)
            elif begin - last > DEADLINE:
                sys.exit("no record was written")
            if asked.is_set() and waits:
                asked.clear()
                print(json.dumps(waits), flush=True)
                waits.clear()


if __name__ == "__main__":
    main(int(sys.argv[1]))
