"""The processes of a real run, as the lab sees them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from ottla.errors import OttlaError
from ottla.lab.world import Ledger
from ottla.types import Millis

READY_SECONDS = 60.0


def now() -> Millis:
    return time.monotonic_ns() // 1_000_000


class Worker:
    """A process that runs one member after the other."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.on_event: Callable[[dict[str, Any]], None] = lambda event: None
        self.ready = asyncio.Event()
        self._task = asyncio.create_task(self._listen())

    @classmethod
    async def spawn(cls, module: str, spec: dict[str, Any]) -> Worker:
        """Start a process, without waiting until it is ready."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", module, json.dumps(spec)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        return cls(process)

    async def await_ready(self) -> None:
        try:
            await asyncio.wait_for(self.ready.wait(), READY_SECONDS)
        except TimeoutError:
            raise OttlaError(f"a process of the lab was not ready after {READY_SECONDS:.0f} s") from None

    async def _listen(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            event = json.loads(line)
            if event["event"] == "ready":
                self.ready.set()
            else:
                self.on_event(event)

    def tell(self, do: str, **values: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **values}).encode() + b"\n")

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    async def end(self) -> None:
        """End the process now."""
        self.signal(signal.SIGKILL)
        await self.process.wait()
        await asyncio.gather(self._task, return_exceptions=True)


class RealMember:
    """A member of the group; a `Reader` of the ledger."""

    def __init__(self, worker: Worker, name: str, identity: str, ledger: Ledger, counts: Counter[str]) -> None:
        self.worker, self.name, self.identity = worker, name, identity
        self._ledger, self._counts = ledger, counts
        self.is_alive = True
        self.left = asyncio.Event()
        self._paused_until: Millis = 0
        worker.on_event = self._happened

    @property
    def reads(self) -> bool:
        return self.is_alive and self._paused_until <= now()

    def may_commit(self, partition: int) -> bool:
        return True

    def _happened(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        self._counts[kind] += 1
        if kind == "took" and self.is_alive:
            for partition in event["partitions"]:
                self._ledger.claim(self, partition, self.identity, now=now())
        elif kind == "dropped":
            self._drop(event["partitions"])
        elif kind == "left":
            self.left.set()

    def _drop(self, partitions: list[int]) -> None:
        for partition in partitions:
            self._ledger.release(self, partition, commits=True, now=now())

    def is_gone(self) -> None:
        """It left or crashed."""
        self._drop(self._ledger.owns(self))
        self.is_alive = False

    async def pause(self, length: Millis) -> None:
        """Stop the process for a while."""
        self.worker.signal(signal.SIGSTOP)
        self._paused_until = now() + length
        self._ledger.changed(self, now=now())
        await asyncio.sleep(length / 1000)
        self.worker.signal(signal.SIGCONT)
        self._ledger.changed(self, now=now())
