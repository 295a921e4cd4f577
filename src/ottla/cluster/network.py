"""A network on loopback that can be cut, without root.

Each broker has a door: a port that it advertises, whose connections are forwarded to the broker. Each broker also
reaches ZooKeeper through a door of its own. A broker that opens a connection says who it is in its first request
(`client.id` starts with ``broker-N-``), so a door knows both ends and holds back the bytes of links that are cut.

A cut is silent, like a pulled cable: connections stay open, and what was sent arrives after the cut is mended. The
door of a dead broker refuses connections, as its own port would: brokers notice a dead process by that.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from ottla.cluster.ports import free_port
from ottla.runtime.loops import new_event_loop

T = TypeVar("T")
Address = tuple[str, int]

CLIENTS = "clients"
ZOOKEEPER = "zookeeper"
_CHUNK = 256 << 10
_PEER = re.compile(rb"broker-(\d+)-")
_HEADER = struct.Struct(">ihhih")
_CONNECT_SECONDS = 1.0


@dataclass(slots=True)
class Link:
    """Who talks to whom: ids of brokers, `CLIENTS` or `ZOOKEEPER`. The source is None until it has said who it is."""

    source: int | str | None
    target: int | str


class Door:
    """A port whose connections are forwarded to one of some addresses. Belongs to the network's event loop."""

    def __init__(self, network: Network, port: int, targets: Sequence[Address], link: Link) -> None:
        self.port = port
        self.is_ready = False
        """The broker behind it has started: if it refuses connections from now on, it is dead."""
        self._network = network
        self._targets = targets
        self._link = link
        self._listener: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Accept connections."""
        if self._listener is None:
            self._listener = _listening(self.port)
            asyncio.get_running_loop().add_reader(self._listener.fileno(), self._accept, self._listener)

    def close(self) -> None:
        """Refuse connections from now on. Those that are open end with the server's."""
        self.is_ready = False
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener.fileno())
            self._listener.close()
            self._listener = None

    async def shut(self) -> None:
        """Close the door and all connections."""
        self.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            client.setblocking(False)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = asyncio.get_running_loop().create_task(self._serve(client))
            self._tasks.add(task)
            task.add_done_callback(partial(self._served, client))

    def _served(self, client: socket.socket, task: asyncio.Task[None]) -> None:
        # A task that is cancelled before it runs closes nothing itself.
        client.close()
        self._tasks.discard(task)

    async def _serve(self, client: socket.socket) -> None:
        server: socket.socket | None = None
        try:
            server = await self._connected()
            if server is not None:
                await self._forward(client, server, replace(self._link))
                # Whoever loses this connection may try another one at once, and must be refused if the broker is dead.
                await self._check()
        finally:
            if server is not None:
                server.close()
            client.close()

    async def _connected(self) -> socket.socket | None:
        """A connection to the server behind the door, or None."""
        for address in self._targets:
            server = _new_socket()
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    await asyncio.get_running_loop().sock_connect(server, address)
                return server
            except TimeoutError:
                server.close()
                return None
            except OSError:
                server.close()
            except BaseException:
                server.close()
                raise
        if self.is_ready:
            self.close()
        return None

    async def _check(self) -> None:
        if self.is_ready:
            server = await self._connected()
            if server is not None:
                server.close()

    async def _forward(self, client: socket.socket, server: socket.socket, link: Link) -> None:
        both = [
            asyncio.create_task(self._pump(client, server, link, identify=link.source is None)),
            asyncio.create_task(self._pump(server, client, link)),
        ]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)

    async def _pump(self, source: socket.socket, sink: socket.socket, link: Link, *, identify: bool = False) -> None:
        """Forward bytes until one side ends. `identify`: find out first who sends them."""
        loop = asyncio.get_running_loop()
        try:
            data = await _first_bytes(source) if identify else await loop.sock_recv(source, _CHUNK)
            if identify:
                link.source = sender_of(data)
            while data:
                await self._network.mended(link)
                await loop.sock_sendall(sink, data)
                data = await loop.sock_recv(source, _CHUNK)
        except OSError:
            pass
        # An end is not noticed during a cut either.
        await self._network.mended(link)


class Network:
    """The doors of a cluster and the links that are cut, on an event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="ottla-network", daemon=True)
        self._thread.start()
        self._doors: list[Door] = []
        self._cut: dict[int | str | None, bool] = {}
        self._changed = asyncio.Event()

    def door(self, target: int, address: Address, port: int | None = None) -> Door:
        """Return a new door to a broker. It refuses connections until it is opened."""
        return self._add(Door(self, port or free_port(), [address], Link(None, target)))

    def door_to_zookeeper(self, source: int, addresses: Sequence[Address]) -> Door:
        """Return an open door from a broker to ZooKeeper."""
        door = self._add(Door(self, free_port(), addresses, Link(source, ZOOKEEPER)))
        self.open(door)
        return door

    def _add(self, door: Door) -> Door:
        self._doors.append(door)
        return door

    def open(self, door: Door) -> None:
        """Accept connections for a broker that starts."""
        self._call(_now(door.open))

    def ready(self, door: Door) -> None:
        """The broker has started: refuse connections once it no longer accepts them."""
        door.is_ready = True

    def close(self, door: Door) -> None:
        """Refuse connections."""
        self._call(_now(door.close))

    def cut(self, broker: int, *, clients: bool) -> None:
        """Cut a broker off from the other brokers and ZooKeeper, and from clients if wanted."""
        self._cut[broker] = clients
        self._call(_now(self._tell))

    def mend(self, broker: int) -> None:
        """Undo `cut`. What was sent meanwhile arrives now."""
        self._cut.pop(broker, None)
        self._call(_now(self._tell))

    def is_cut(self, link: Link) -> bool:
        """Whether bytes of this link are held back."""
        if link.source == CLIENTS:
            return self._cut.get(link.target, False)
        return link.source in self._cut or link.target in self._cut

    async def mended(self, link: Link) -> None:
        """Wait until the link is not cut."""
        while self.is_cut(link):
            await self._changed.wait()

    def stop(self) -> None:
        """Close all doors and connections, and end the thread."""
        if self._thread.is_alive():
            self._call(self._shut())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _shut(self) -> None:
        for door in self._doors:
            await door.shut()

    def _tell(self) -> None:
        self._changed.set()
        self._changed.clear()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


async def _now(act: Callable[[], None]) -> None:
    act()


async def _first_bytes(client: socket.socket) -> bytes:
    """What a client sends first, at least as far as its name if it is a Kafka client."""
    data = b""
    while len(data) < _HEADER.size + _name_length(data):
        part = await asyncio.get_running_loop().sock_recv(client, _CHUNK)
        if not part:
            break
        data += part
    return data


def _name_length(data: bytes) -> int:
    return max(0, _HEADER.unpack_from(data)[4]) if len(data) >= _HEADER.size else 0


def sender_of(data: bytes) -> int | str:
    """Return who sends these first bytes: the id of a broker, or CLIENTS.

    >>> sender_of(struct.pack(">ihhih", 40, 18, 4, 0, 16) + b"broker-2-fetcher")
    2
    """
    match = _PEER.match(data, _HEADER.size)
    return CLIENTS if match is None else int(match[1])


def _new_socket() -> socket.socket:
    made = socket.socket()
    made.setblocking(False)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def _listening(port: int) -> socket.socket:
    listener = _new_socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    return listener
