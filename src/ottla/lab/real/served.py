"""Processes of the design *server*, over a real ZooKeeper and real sockets: a coordinator, and its members.

A member registers in ``/ids`` and listens on a port, which is the data of its node. The coordinator watches ``/ids``.
At a change it asks all members to stop, waits until they have stopped or are gone, and tells each its share.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from typing import Any

from ottla.lab.old import IDS, share
from ottla.lab.real.speech import say
from ottla.lab.real.watcher import lines, polls, quietly
from ottla.zookeeper.client import ZooKeeper
from ottla.zookeeper.values import Create, SessionState

LOOK = 0.5
"""Seconds after which the coordinator looks whether a member that has not stopped is gone."""


class Served:
    """A member. It does what the coordinator tells it."""

    def __init__(self, zookeeper: ZooKeeper, name: str) -> None:
        self._zookeeper, self._name = zookeeper, name
        self._owned: set[int] = set()
        self._port = 0
        self.busy_until = 0.0
        zookeeper.on_state(self._state)
        self._is_lost = False
        self._tasks: set[asyncio.Task[None]] = set()

    def _state(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self._is_lost = True
        elif state is SessionState.CONNECTED and self._is_lost:
            self._is_lost = False
            self.drop()
            task = asyncio.get_running_loop().create_task(self._register())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def start(self) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._port = server.sockets[0].getsockname()[1]
        await self._register()

    async def _register(self) -> None:
        data = str(self._port).encode()
        await quietly(self._zookeeper.multi(Create(f"{IDS}/{self._name}", data, is_ephemeral=True)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                numbers = json.loads(line)
                if numbers is None:
                    await polls(self)
                    self.drop()
                    writer.write(b"stopped\n")
                    await writer.drain()
                else:
                    self._owned = set(numbers)
                    say("took", partitions=numbers)
        writer.close()

    def drop(self) -> None:
        owned, self._owned = self._owned, set()
        if owned:
            say("dropped", partitions=sorted(owned))


class Coordinator:
    """Assigns partitions to the members that are registered."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._watch = zookeeper.watch()
        self._links: dict[str, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}

    async def run(self) -> None:
        while True:
            await self._zookeeper.exists("/partitions", self._watch)
            ids = await self._zookeeper.children(IDS, self._watch)
            for gone in self._links.keys() - set(ids):
                self._links.pop(gone)[1].close()
            stopped = await asyncio.gather(*(self._stop(one) for one in ids))
            here = [one for one, is_here in zip(ids, stopped, strict=True) if is_here]
            count = int((await self._zookeeper.get("/partitions")).data)
            for name, numbers in (share(here, count) if here else {}).items():
                self._links[name][1].write(json.dumps(sorted(numbers)).encode() + b"\n")
                say("message")
            await self._watch.wait()
            say("notified")

    async def _stop(self, name: str) -> bool:
        """Ask a member to stop; returns whether it is still there."""
        try:
            if name not in self._links:
                node = await self._zookeeper.find(f"{IDS}/{name}")
                if node is None:
                    return False
                self._links[name] = await asyncio.open_connection("127.0.0.1", int(node.data))
            reader, writer = self._links[name]
            writer.write(b"null\n")
            say("message")
            answer = asyncio.ensure_future(reader.readline())
            while not (await asyncio.wait([answer], timeout=LOOK))[0]:
                if await self._zookeeper.exists(f"{IDS}/{name}") is None:
                    answer.cancel()
                    self._links.pop(name)[1].close()
                    return False
            return bool(answer.result())
        except OSError:
            self._links.pop(name, None)
            return False


async def main() -> None:
    spec: dict[str, Any] = json.loads(sys.argv[1])
    reader = await lines()
    say("ready")
    served: Served | None = None
    task: asyncio.Task[None] | None = None
    zookeeper: ZooKeeper | None = None
    while line := await reader.readline():
        command = json.loads(line)
        if command["do"] in ("start", "coordinate"):
            zookeeper = ZooKeeper(spec["zookeeper"], session_timeout_ms=spec["session_timeout"])
            await zookeeper.start()
            if command["do"] == "coordinate":
                task = asyncio.create_task(Coordinator(zookeeper).run())
            else:
                served = Served(zookeeper, command["name"])
                await served.start()
        elif command["do"] == "slow" and served is not None:
            served.busy_until = asyncio.get_running_loop().time() + command["ms"] / 1000
        elif command["do"] == "leave" and served is not None and zookeeper is not None:
            served.drop()
            await zookeeper.stop()
            say("left")
    if task is not None:
        task.cancel()


if __name__ == "__main__":
    asyncio.run(main())
