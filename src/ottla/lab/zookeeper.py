"""A model of ZooKeeper for the old designs: sessions that expire, ephemeral nodes, one-shot watches, stale reads.

Writes take effect at once and in one order. A session reads from one of three servers, which learn of writes late. A
watch fires when the server of its session learns of a change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.lab.world import World
from ottla.types import Millis

if TYPE_CHECKING:
    from ottla.lab.member import Process

HEADER = 44
"""Bytes of a request or response beside its path and data."""
CHECK: Millis = 500


class Server:
    """A copy of the tree."""

    def __init__(self, world: World, delay: Millis) -> None:
        self.world = world
        self.delay = delay
        self._children: dict[str, set[str]] = {}
        self.watches: dict[str, set[Session]] = {}

    def learn(self, path: str, data: str | None) -> None:
        parent, _, name = path.rpartition("/")
        children = self._children.setdefault(parent, set())
        children.discard(name) if data is None else children.add(name)
        for watched in (path, parent):
            for session in sorted(self.watches.pop(watched, ()), key=lambda one: one.number):
                session.fire(watched)

    def children(self, path: str) -> list[str]:
        return sorted(self._children.get(path, ()))


class ZooKeeper:
    """The ensemble."""

    def __init__(self, world: World, *, session_timeout: Millis, stale: Millis = 300) -> None:
        self.world = world
        self.session_timeout = session_timeout
        self.nodes: dict[str, tuple[str, Session | None]] = {}
        self.servers = [Server(world, delay) for delay in (0, stale // 3, stale)]
        self.sessions = 0

    def write(self, path: str, data: str | None, session: Session | None) -> None:
        if data is None:
            if self.nodes.pop(path, None) is None:
                return
        else:
            self.nodes[path] = data, session
        for server in self.servers:
            # The same delay for all writes of a server keeps their order.
            self.world.after(server.delay, partial(server.learn, path, data))

    def expire(self, session: Session) -> None:
        for path in [path for path, (_, owner) in self.nodes.items() if owner is session]:
            self.write(path, None, None)


class Session:
    """A session of a process. It expires when the process is silent for too long."""

    def __init__(self, zookeeper: ZooKeeper, process: Process, on_watch: Callable[[str], None]) -> None:
        self.zookeeper, self.process, self.world = zookeeper, process, zookeeper.world
        self.is_expired = False
        self.number = zookeeper.sessions
        zookeeper.sessions += 1
        self.server = zookeeper.servers[self.number % len(zookeeper.servers)]
        self._on_watch = on_watch
        self._heard_at = self._pinged_at = self.world.now
        self._check()

    def _check(self) -> None:
        if self.is_expired:
            return
        now = self.world.now
        if not self.process.is_cut and self.process.paused_until <= now:
            self._heard_at = now
            if now - self._pinged_at >= self.zookeeper.session_timeout // 3:
                self._pinged_at = now
                self.world.ledger.message(2 * HEADER, now=now)
        elif now - self._heard_at >= self.zookeeper.session_timeout:
            self.end()
            return
        self.world.after(CHECK, self._check)

    def end(self) -> None:
        """End the session, with its nodes."""
        if not self.is_expired:
            self.is_expired = True
            self.zookeeper.expire(self)

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────

    def create(self, path: str, data: str, on_answer: Callable[[bool], None]) -> None:
        """Create an ephemeral node; the answer says whether there was none."""

        def run() -> bool:
            if path in self.zookeeper.nodes:
                return False
            self.zookeeper.write(path, data, self)
            return True

        self._call(len(path) + len(data), run, on_answer)

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._call(len(path), partial(self.zookeeper.write, path, None, None), lambda _: None)

    def children(self, path: str, on_answer: Callable[[list[str]], None], *, watch: bool = True) -> None:
        def run() -> list[str]:
            if watch:
                self.server.watches.setdefault(path, set()).add(self)
            return self.server.children(path)

        self._call(len(path), run, on_answer)

    def read_all(self, paths: list[str], on_answer: Callable[[None], None]) -> None:
        """Read many nodes one after the other; the answer comes after the last."""
        size = len(paths[0]) if paths else 0
        if len(paths) > 1 and not self.process.is_cut and not self.is_expired:
            # Their order among other messages does not matter, so they are only counted.
            self.world.ledger.message(size + 2 * HEADER, now=self.world.now, count=len(paths) - 1)
        self._call(size, lambda: None, on_answer)

    def _call(self, size: int, run: Callable[[], Any], on_answer: Callable[[Any], None]) -> None:
        if self.is_expired or self.process.is_cut:
            return
        self.world.send(size + HEADER, lambda: self._arrived(run, on_answer))

    def _arrived(self, run: Callable[[], Any], on_answer: Callable[[Any], None]) -> None:
        if self.is_expired:
            return
        answer = run()
        size = HEADER + (sum(map(len, answer)) if isinstance(answer, list) else 0)
        self.world.answer(size, lambda: self.process.when_awake(lambda: self._answered(answer, on_answer)))

    def _answered(self, answer: Any, on_answer: Callable[[Any], None]) -> None:
        if not self.process.is_cut:
            on_answer(answer)

    def fire(self, path: str) -> None:
        """Notify the process of a change."""
        if not self.is_expired:
            self.world.send(len(path) + HEADER, lambda: self._notified(path), is_notification=True)

    def _notified(self, path: str) -> None:
        if not self.process.is_cut:
            self.process.when_awake(lambda: self._on_watch(path))
