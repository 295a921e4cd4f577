"""The consumer group of ``ottla demo``: each member is a process, and one of them is killed.

Members report what they have read (member.py). Together they must read every record at least once.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla.errors import OttlaError

SETTLE_SECONDS = 60.0
STOP_SECONDS = 20.0
_TICK = 0.05

Pieces = list[list[int]]


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many records a group read: `missed` were never read, `again` were read more than once."""

    records: int
    missed: int
    again: int


def coverage(ends: Mapping[int, int], reports: Iterable[Mapping[int, Pieces]]) -> Coverage:
    """Combine the reports of all members; `ends` has the end offset of each partition.

    >>> coverage({0: 10}, [{0: [[0, 6]]}, {0: [[4, 9]]}])
    Coverage(records=10, missed=1, again=2)
    """
    pieces: dict[int, Pieces] = {partition: [] for partition in ends}
    for report in reports:
        for partition, found in report.items():
            pieces[partition].extend(found)
    missed = again = 0
    for partition, end in ends.items():
        reached = 0
        for first, after in sorted(pieces[partition]):
            missed += max(0, first - reached)
            again += max(0, min(after, reached) - first)
            reached = max(reached, after)
        missed += max(0, end - reached)
    return Coverage(sum(ends.values()), missed, again)


class Member:
    """A member process and its last report."""

    def __init__(self, number: int, process: asyncio.subprocess.Process) -> None:
        self.number = number
        self.assigned: list[int] = []
        self.read: dict[int, Pieces] = {}
        self.killed = False
        self._process = process
        self._listening = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        assert self._process.stdout is not None, "stdout is a pipe"
        async for line in self._process.stdout:
            if line.endswith(b"\n"):  # a killed member may leave a partial line
                report = json.loads(line)
                self.assigned = report["assigned"]
                self.read = {int(partition): pieces for partition, pieces in report["read"].items()}

    @property
    def ended(self) -> bool:
        return self._process.returncode is not None

    async def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self.killed = True
        await self._process.wait()
        await self._listening

    async def stop(self) -> None:
        if not self.ended:
            self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), STOP_SECONDS)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        await self._listening


class Group:
    """The members, as an async context manager that stops them."""

    def __init__(self, servers: str, topic: str, partitions: int, name: str, size: int) -> None:
        self._servers, self._topic, self._partitions = servers, topic, partitions
        self.name = name
        self._size = size
        self.members: list[Member] = []

    async def __aenter__(self) -> Group:
        for number in range(1, self._size + 1):
            command = [
                sys.executable,
                "-m",
                "ottla.cli.demo.member",
                self._servers,
                self._topic,
                self.name,
                str(number),
            ]
            process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
            )
            self.members.append(Member(number, process))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        await asyncio.gather(*(member.stop() for member in self.members))

    @property
    def living(self) -> Sequence[Member]:
        return [member for member in self.members if not member.killed]

    @property
    def records(self) -> int:
        """The number of records read, including repeated ones."""
        return sum(
            after - first for member in self.members for pieces in member.read.values() for first, after in pieces
        )

    async def settled(self) -> list[int]:
        """Wait until the living members own all partitions, and return the number of each."""
        async with asyncio.timeout(SETTLE_SECONDS):
            while not self._is_settled():
                self.check()
                await asyncio.sleep(_TICK)
        return [len(member.assigned) for member in self.living]

    def _is_settled(self) -> bool:
        owned = [partition for member in self.living for partition in member.assigned]
        fewest = 1 if self._partitions >= len(self.living) else 0
        return sorted(owned) == list(range(self._partitions)) and all(
            len(member.assigned) >= fewest for member in self.living
        )

    def check(self) -> None:
        for member in self.living:
            if member.ended:
                raise OttlaError(f"member {member.number} of the group ended unexpectedly: see its output above")

    async def read_all(self, ends: Mapping[int, int], seconds: float) -> Coverage:
        """Wait until everything was read, or until the timeout."""
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            found = coverage(ends, [member.read for member in self.members])
            if not found.missed or asyncio.get_running_loop().time() > deadline:
                return found
            self.check()
            await asyncio.sleep(_TICK)
