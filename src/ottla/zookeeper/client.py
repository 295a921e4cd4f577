"""A ZooKeeper session for the event loop.

kazoo has a thread of its own. Its answers, watches and states are brought to the event loop here, in order, so the
rest of the broker sees coroutines and callbacks only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from ottla.config.zookeeper import ConnectString
from ottla.errors import OttlaError
from ottla.zookeeper.values import (
    ANYBODY,
    Access,
    ConnectionLost,
    Create,
    Node,
    NodeExists,
    NoNode,
    Operation,
    Rejected,
    SessionClosed,
    SessionState,
    Set,
    Stat,
    ZooKeeperError,
)

if TYPE_CHECKING:
    from ottla.zookeeper._kazoo import Connection

log = logging.getLogger(__name__)

LARGEST_REQUEST = 1_000_000
"""ZooKeeper closes the connection when a request is larger than 1 MB (its jute.maxbuffer)."""
# kazoo wakes its thread with one byte for each request, and the event loop would block when 200 are not read.
_MOST_UNANSWERED = 64
_RESTART_SECONDS = 0.5
#: Attempts to connect within the connection timeout, if a server accepts them and does not answer.
_ATTEMPTS = 3
_PROBE_SECONDS = 1.0
_STOP_SECONDS = 5.0


class CannotConnect(OttlaError):
    """ZooKeeper did not answer in time."""


class ZooKeeper:
    """A session with ZooKeeper.

    Reads wait until ZooKeeper answers, however long that takes. A write raises ConnectionLost if its answer was lost:
    it may have happened. After the loss of a session a new one follows.

        zookeeper = ZooKeeper("localhost:2181/ottla")
        await zookeeper.start()
        await zookeeper.multi(Create("/greeting", b"hello"))
        node = await zookeeper.get("/greeting")
        await zookeeper.stop()
    """

    def __init__(
        self,
        connect: str,
        *,
        session_timeout_ms: int = 18_000,
        connection_timeout_ms: int = 18_000,
        access: Access = ANYBODY,
    ) -> None:
        self._access = access
        self.address = ConnectString.parse(connect)
        self.session_timeout = session_timeout_ms / 1000
        self.connection_timeout = connection_timeout_ms / 1000
        self.state = SessionState.LOST
        self.session_id = 0
        """The id of the session, as ephemeral nodes have it."""
        self._listeners: list[Callable[[SessionState], None]] = []
        self._waiting: deque[tuple[Callable[[Connection], Any], asyncio.Future[Any]]] = deque()
        self._unanswered: set[asyncio.Future[Any]] = set()
        self._connected = asyncio.Event()
        self._is_stopped = False
        self._loop = asyncio.get_running_loop()
        self._connection = self._new_connection()

    def _new_connection(self) -> Connection:
        try:
            from ottla.zookeeper import _kazoo
        except ImportError:
            raise OttlaError("a cluster requires kazoo, which is not installed: pip install 'ottla[cluster]'") from None
        self._kazoo = _kazoo
        return _kazoo.Connection(
            self.address.hosts,
            self.session_timeout,
            self.connection_timeout / _ATTEMPTS,
            lambda *state: self._on_loop(self._changed, *state),
            self._access,
        )

    # ── the session ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Connect, and create the chroot if it does not exist. Raises CannotConnect."""
        self._connection.start()
        try:
            await asyncio.wait_for(self._connected.wait(), self.connection_timeout)
            await asyncio.wait_for(self._create_chroot(), self.connection_timeout)
        except TimeoutError:
            await self.stop()
            raise CannotConnect(await self._why_not_connected()) from None
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Close the session. Its ephemeral nodes disappear at once."""
        if self._is_stopped:
            return
        self._is_stopped = True
        self._fail([*self._unanswered, *(future for _, future in self._waiting)], SessionClosed)
        self._waiting.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._in_thread(self._connection.stop), _STOP_SECONDS)

    def on_state(self, listener: Callable[[SessionState], None]) -> None:
        """Call the listener on the event loop when the state has changed."""
        self._listeners.append(listener)

    async def _create_chroot(self) -> None:
        names = self.address.chroot.split("/")[1:]
        for count in range(1, len(names) + 1):
            await self._ensure("/" + "/".join(names[:count]))

    async def _ensure(self, path: str) -> None:
        while True:
            try:
                await self._write([Create(path)], root="")
            except ConnectionLost:
                continue
            except Rejected as error:
                if not isinstance(error.reason, NodeExists):
                    raise
            return

    async def _why_not_connected(self) -> str:
        probes = await asyncio.gather(*(_described(host, port) for host, port in self.address.addresses))
        found = ", ".join(f"{host} {probe}" for host, probe in zip(self.address.hosts, probes, strict=True))
        return (
            f"cannot connect to ZooKeeper within {self.connection_timeout:g} s (zookeeper.connection.timeout.ms): "
            f"{found}; check zookeeper.connect{self._secrets_to_check()}, and that ZooKeeper is running"
        )

    def _secrets_to_check(self) -> str:
        names = ["zookeeper.ssl.client.enable and the certificates"] if self._access.tls is not None else []
        names += ["ottla.zookeeper.jaas.config"] if self._access.sasl is not None else []
        return "".join(f", {name}" for name in names)

    def _changed(self, state: SessionState, session_id: int) -> None:
        if self._is_stopped or state is self.state:
            return
        self.state = state
        if state is SessionState.CONNECTED:
            log.info("connected to ZooKeeper at %s, session %x", self.address, session_id & (2**64 - 1))
            self.session_id = session_id
            self._connected.set()
        else:
            log.warning("the ZooKeeper session is %s", state.value)
            self._connected.clear()
        if state is SessionState.LOST:
            self.session_id = 0
            # kazoo answers them too, except for one that came while it changed its queues.
            self._fail(list(self._unanswered), ConnectionLost)
            self._loop.call_later(_RESTART_SECONDS, self._restart)
        for listener in self._listeners:
            listener(state)
        self._pump()

    def _restart(self) -> None:
        if not self._is_stopped and self.state is SessionState.LOST:
            if self._connection.is_closed:
                self._in_thread(self._connection.start)
            self._loop.call_later(_RESTART_SECONDS, self._restart)

    # ── reads ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        """Return a node. Raises NoNode. The watch wakes when the node has changed or may have."""
        return self._kazoo.node_of(await self._read(lambda connection: connection.get(self._full(path), watch)))

    async def find(self, path: str) -> Node | None:
        """Return a node, or None if it does not exist."""
        try:
            return await self.get(path)
        except NoNode:
            return None

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Return what ZooKeeper knows about a node, or None. The watch wakes when that has changed or may have."""
        answer = await self._read(lambda connection: connection.exists(self._full(path), watch))
        return None if answer is None else self._kazoo.stat_of(answer)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the names of the children. The watch wakes when one was created or deleted."""
        answer = await self._read(lambda connection: connection.children(self._full(path), watch))
        return sorted(answer)

    async def sync(self, path: str) -> None:
        """Make later reads see what other clients have written before now, on whatever server."""
        await self._read(lambda connection: connection.sync(self._full(path)))

    async def _read(self, send: Callable[[Connection], Any]) -> Any:
        while True:
            try:
                return await self._submit(send)
            except ConnectionLost:
                continue

    # ── writes ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def multi(self, *operations: Operation) -> asyncio.Future[int]:
        """Do all operations or none, and return the id of the transaction (-1 if no operation is a Set).

        The request is sent before this returns, and requests arrive in the order of the calls, so a caller may have
        several under way. Raises Rejected, and ConnectionLost if the answer was lost.
        """
        return self._write(operations, root=self.address.chroot)

    def _write(self, operations: Sequence[Operation], root: str) -> asyncio.Future[int]:
        size = sum(len(each.data) if isinstance(each, Create | Set) else 0 for each in operations)
        if size > LARGEST_REQUEST:
            raise ZooKeeperError(f"a write of {size} bytes is too large for ZooKeeper, which takes {LARGEST_REQUEST}")
        return self._submit(lambda connection: connection.multi(operations, root), self._kazoo.zxid_of)

    # ── from the event loop to kazoo's thread and back ───────────────────────────────────────────────────────────────

    def _full(self, path: str) -> str:
        return f"{self.address.chroot}{path}"

    def _submit(
        self, send: Callable[[Connection], Any], convert: Callable[[Any], Any] = lambda answer: answer
    ) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        # An error that nobody waits for is no accident: a caller with several writes may have failed by the first.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        if self._is_stopped:
            self._fail([future], SessionClosed)
            return future

        def answered(result: Any) -> None:
            self._on_loop(self._resolve, future, result, convert)

        self._waiting.append((lambda connection: send(connection).rawlink(answered), future))
        self._pump()
        return future

    def _pump(self) -> None:
        while self._waiting and len(self._unanswered) < _MOST_UNANSWERED and self.state is SessionState.CONNECTED:
            send, future = self._waiting.popleft()
            if not future.done():
                self._unanswered.add(future)
                send(self._connection)

    def _resolve(self, future: asyncio.Future[Any], result: Any, convert: Callable[[Any], Any]) -> None:
        self._unanswered.discard(future)
        if not future.done():
            error = result.exception
            try:
                if error is not None:
                    raise self._kazoo.error_of(error)
                future.set_result(convert(result.value))
            except ZooKeeperError as problem:
                future.set_exception(problem)
        self._pump()

    def _fail(self, futures: Sequence[asyncio.Future[Any]], error: type[ZooKeeperError]) -> None:
        for future in futures:
            self._unanswered.discard(future)
            if not future.done():
                future.set_exception(error(error.__doc__))

    def _on_loop(self, callback: Callable[..., None], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(callback, *arguments)

    def _in_thread(self, work: Callable[[], None]) -> asyncio.Future[None]:
        """Run blocking work. The thread is a daemon: it must not keep the process alive."""
        future: asyncio.Future[None] = self._loop.create_future()

        def run() -> None:
            try:
                work()
            except Exception:
                log.exception("the connection to ZooKeeper failed")
            self._on_loop(lambda: None if future.done() else future.set_result(None))

        threading.Thread(target=run, name="ottla-zookeeper", daemon=True).start()
        return future

    def watch(self) -> Watch:
        """Return a watch for reads."""
        return Watch(self._on_loop)


class Watch:
    """Wakes a task when what it has read may have changed, also after the loss of a connection."""

    def __init__(self, on_loop: Callable[[Callable[[], None]], None]) -> None:
        self._on_loop = on_loop
        self._event = asyncio.Event()

    def __call__(self, _: object) -> None:
        """On kazoo's thread."""
        self._on_loop(self.wake)

    def wake(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        await self._event.wait()
        self._event.clear()


class Observer:
    """A task that reads something now, and again whenever its watch wakes.

    `refresh` gets the watch and gives it to its reads. It runs again after a lost connection.
    """

    def __init__(self, zookeeper: ZooKeeper, name: str, refresh: Callable[[Watch], Awaitable[None]]) -> None:
        self._watch = zookeeper.watch()
        self._refresh = refresh
        self._name = name
        self._watch.wake()
        self._task = asyncio.create_task(self._run(), name=name)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._watch.wait()
            try:
                await self._refresh(self._watch)
            except ConnectionLost:
                self._watch.wake()
            except SessionClosed:
                return
            except ZooKeeperError as error:
                log.error("%s failed and is tried again: %s", self._name, error)
                loop.call_later(_RESTART_SECONDS, self._watch.wake)
            except Exception:
                # A broker that stopped here would look alive and know nothing of later changes.
                log.exception("%s failed and is tried again", self._name)
                loop.call_later(_RESTART_SECONDS, self._watch.wake)

    async def stop(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task


async def probe(host: str, port: int, seconds: float = _PROBE_SECONDS) -> Exception | None:
    """Connect to an address once. Return None if that works, else the error; a timeout is a TimeoutError."""
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), seconds)
    except (OSError, UnicodeError) as error:
        return error
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return None


async def _described(host: str, port: int) -> str:
    error = await probe(host, port)
    if error is None:
        return "accepts connections but does not answer"
    if isinstance(error, ConnectionRefusedError):
        return "refuses connections"
    if isinstance(error, TimeoutError):
        return "does not answer"
    return f"cannot be reached ({getattr(error, 'strerror', None) or error})"
