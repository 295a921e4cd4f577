"""A process with one consumer of the design *watchers*, over a real ZooKeeper.

It registers in ``/ids``, watches it, and at each change gives up its partitions, reads all registrations, computes its
share and claims it with nodes in ``/owners``. It reads no records: it only tells what it would read.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable
from typing import Any

from ottla.lab.old import BACK_OFF, BROKERS, IDS, OWNERS, RETRIES, share
from ottla.lab.real.speech import say
from ottla.zookeeper.client import Watch, ZooKeeper
from ottla.zookeeper.values import Create, Delete, NoNode, Rejected, SessionState, ZooKeeperError


class Watcher:
    """A consumer that decides alone."""

    def __init__(self, zookeeper: ZooKeeper, name: str) -> None:
        self._zookeeper, self._name = zookeeper, name
        self._owned: set[int] = set()
        self._watch: Watch = zookeeper.watch()
        self.busy_until = 0.0
        self._is_lost = False
        zookeeper.on_state(self._state)

    def _state(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self._is_lost = True
        if self._is_lost and state is SessionState.CONNECTED:
            self._watch.wake()

    async def run(self) -> None:
        await self._register()
        while True:
            for attempt in range(1, RETRIES + 1):
                if await self._rebalance() or attempt == RETRIES:
                    break
                await asyncio.sleep(BACK_OFF / 1000)
            await self._watch.wait()
            if self._is_lost:
                # Another consumer may have claimed them by now.
                self.drop()
                await self._register()
            else:
                say("notified")

    async def _register(self) -> None:
        self._is_lost = False
        await quietly(self._zookeeper.multi(Create(f"{IDS}/{self._name}", self._name.encode(), is_ephemeral=True)))

    async def _rebalance(self) -> bool:
        await polls(self)
        owned = self.drop()
        for number in owned:
            await quietly(self._zookeeper.multi(Delete(f"{OWNERS}/{number}")))
        await self._zookeeper.children(BROKERS, self._watch)
        ids = await self._zookeeper.children(IDS, self._watch)
        for one in ids:
            await self._zookeeper.find(f"{IDS}/{one}")
        count = int((await self._zookeeper.get("/partitions")).data)
        mine = share(ids, count).get(self._name, set()) if ids else set()
        taken = {number for number in sorted(mine) if await self._claim(number)}
        if taken == mine:
            self._owned = mine
            say("took", partitions=sorted(mine))
            return True
        for number in taken:
            await quietly(self._zookeeper.multi(Delete(f"{OWNERS}/{number}")))
        return False

    async def _claim(self, number: int) -> bool:
        try:
            await self._zookeeper.multi(Create(f"{OWNERS}/{number}", self._name.encode(), is_ephemeral=True))
        except ZooKeeperError:
            return False
        return True

    def drop(self) -> set[int]:
        """Stop to read."""
        owned, self._owned = self._owned, set()
        if owned:
            say("dropped", partitions=sorted(owned))
        return owned


async def polls(member: Any) -> None:
    """Wait until the application polls again."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(max(member.busy_until - loop.time(), 0))


async def quietly(write: Awaitable[object]) -> None:
    """A write that may find that somebody else was faster."""
    try:
        await write
    except (Rejected, NoNode):
        pass


async def lines() -> asyncio.StreamReader:
    """The lab's commands."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


async def main() -> None:
    spec: dict[str, Any] = json.loads(sys.argv[1])
    reader = await lines()
    say("ready")
    member: Watcher | None = None
    task: asyncio.Task[None] | None = None
    zookeeper: ZooKeeper | None = None
    while line := await reader.readline():
        command = json.loads(line)
        if command["do"] == "start":
            zookeeper = ZooKeeper(spec["zookeeper"], session_timeout_ms=spec["session_timeout"])
            await zookeeper.start()
            member = Watcher(zookeeper, command["name"])
            task = asyncio.create_task(member.run())
        elif command["do"] == "slow" and member is not None:
            member.busy_until = asyncio.get_running_loop().time() + command["ms"] / 1000
        elif command["do"] == "leave" and member is not None and task is not None and zookeeper is not None:
            task.cancel()
            member.drop()
            await zookeeper.stop()
            say("left")


if __name__ == "__main__":
    asyncio.run(main())
