"""kazoo behind typed functions. Everything here may run on kazoo's thread; `client.py` brings it to the event loop."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import math
import select
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import KazooState
from kazoo.security import CREATOR_ALL_ACL

from ottla.errors import OttlaError
from ottla.zookeeper.values import (
    ANYBODY,
    Access,
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    Operation,
    Rejected,
    SessionState,
    Set,
    Stat,
    ZooKeeperError,
)

# kazoo reports every attempt to connect. `client.py` reports changes of the state.
_LOGGER = logging.getLogger("ottla.zookeeper.kazoo")
_LOGGER.setLevel(logging.ERROR)
#: How long the first connection waits for an answer, in seconds.
_FIRST_PATIENCE = 1.0

_STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.LOST,
}
_ERRORS: tuple[tuple[tuple[type[Exception], ...], type[ZooKeeperError]], ...] = (
    ((exceptions.SessionExpiredError, exceptions.AuthFailedError, exceptions.SessionMovedError), ConnectionLost),
    ((exceptions.ConnectionLoss, exceptions.OperationTimeoutError, RuntimeError), ConnectionLost),
    ((exceptions.NoNodeError,), NoNode),
    ((exceptions.NodeExistsError,), NodeExists),
    ((exceptions.BadVersionError,), BadVersion),
)


class _Directly(SequentialThreadingHandler):  # type: ignore[misc]
    """Call back on the thread of the connection.

    So answers, watches and states come in the order in which the server sent them, and two threads are saved. Our
    callbacks only wake the event loop.
    """

    running = False

    def __init__(self, access: Access, patience: float) -> None:
        super().__init__()
        self._access = access
        self._longest = patience
        self._patience = self._first = min(_FIRST_PATIENCE, patience)
        self._is_connecting = False

    def create_connection(self, address: tuple[str, int], hostname: str, timeout: float, **_: Any) -> socket.socket:
        """Connect to a server, with a context of our own, which trusts only whom the configs say."""
        self._is_connecting = True
        sock = socket.create_connection(address, min(timeout, self._longest))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._access.tls is None:
            return sock
        try:
            return self._access.tls().wrap_socket(sock, server_hostname=hostname)
        except BaseException:
            sock.close()
            raise

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def spawn(self, function: Callable[..., None], *arguments: Any) -> threading.Thread:
        def run() -> None:
            with contextlib.suppress(Exception):  # kazoo has logged it, and `Connection.is_closed` tells
                function(*arguments)

        thread = threading.Thread(target=run, name="ottla-zookeeper", daemon=True)
        thread.start()
        return thread

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)

    def select(self, readable: Any, writable: Any, _: Any, timeout: float | None = None) -> Any:
        """As `select.select`. kazoo's own makes a new epoll each time, which is a third of the work of a request.

        For the answer to its first request on a connection, kazoo would wait as long as the session may last. That is
        too long: a server that starts accepts connections some of which it never answers.
        """
        if len(readable) > 1:  # something to read or to send: kazoo is connected
            self._is_connecting, self._patience = False, self._first
        if self._is_connecting and timeout is not None:
            timeout = min(timeout, self._patience)
        poll = select.poll()
        for each in readable:
            poll.register(each, select.POLLIN)
        for each in writable:
            poll.register(each, select.POLLOUT)
        ready = {fd for fd, _ in poll.poll(None if timeout is None else math.ceil(timeout * 1000))}
        if self._is_connecting and not ready:
            self._patience = min(self._patience * 2, self._longest)
        return (
            [each for each in readable if each.fileno() in ready],
            [each for each in writable if each.fileno() in ready],
            [],
        )


class Connection:
    """A session that connects again and again. `on_state` gets the state and the id of the session.

    It gives up a new connection on which an answer takes longer than a second, the next one after two seconds, and so
    on up to `patience`.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        session_timeout: float,
        patience: float,
        on_state: Callable[[SessionState, int], None],
        access: Access = ANYBODY,
    ) -> None:
        self._client = KazooClient(
            ",".join(hosts),
            session_timeout,
            handler=_Directly(access, patience),
            connection_retry={"max_tries": -1, "delay": 0.05, "backoff": 2, "max_jitter": 0.2, "max_delay": 0.5},
            default_acl=CREATOR_ALL_ACL if access.keeps_nodes_private else None,
            auth_data=[("digest", access.digest)] if access.digest is not None else None,
            sasl_options=_sasl_options(access),
            logger=_LOGGER,
        )
        self._on_state = on_state
        self._client.add_listener(self._changed)

    def _changed(self, state: str) -> None:
        session = self._client.client_id
        self._on_state(_STATES[state], session[0] if session else 0)

    @property
    def is_closed(self) -> bool:
        """Whether kazoo has given up, for example after a malformed answer. `start` begins anew."""
        return bool(self._client._connection.connection_stopped.is_set())

    def start(self) -> None:
        """May block while an earlier connection ends."""
        self._client.start_async()

    def stop(self) -> None:
        """Close the session. Blocks."""
        self._client.stop()
        self._client.close()

    def get(self, path: str, watch: Callable[[Any], None] | None) -> Any:
        return self._client.get_async(path, watch)

    def exists(self, path: str, watch: Callable[[Any], None] | None) -> Any:
        return self._client.exists_async(path, watch)

    def children(self, path: str, watch: Callable[[Any], None] | None) -> Any:
        return self._client.get_children_async(path, watch)

    def sync(self, path: str) -> Any:
        return self._client.sync_async(path)

    def multi(self, operations: Sequence[Operation], root: str) -> Any:
        transaction = self._client.transaction()
        for operation in operations:
            path = root + operation.path
            match operation:
                case Create():
                    transaction.create(path, operation.data, ephemeral=operation.is_ephemeral)
                case Set():
                    transaction.set_data(path, operation.data, operation.version)
                case Delete():
                    transaction.delete(path, operation.version)
                case Check():
                    transaction.check(path, operation.version)
        return transaction.commit_async()


def _sasl_options(access: Access) -> dict[str, str] | None:
    if access.sasl is None:
        return None
    if importlib.util.find_spec("puresasl") is None:
        raise OttlaError(
            "a login at ZooKeeper with SASL (ottla.zookeeper.jaas.config) requires pure-sasl, which is not installed: "
            "pip install 'ottla[cluster]'"
        )
    username, password = access.sasl
    return {"mechanism": "DIGEST-MD5", "username": username, "password": password}


def node_of(answer: Any) -> Node:
    return Node(answer[0] or b"", stat_of(answer[1]))


def stat_of(answer: Any) -> Stat:
    return Stat(answer.czxid, answer.mzxid, answer.version, answer.ephemeralOwner)


def zxid_of(answers: Sequence[Any]) -> int:
    """The transaction id of a multi: -1 if it set no data, as only these answers have it. Raises Rejected."""
    zxid = -1
    for index, answer in enumerate(answers):
        if isinstance(answer, exceptions.RolledBackError):
            continue
        if isinstance(answer, Exception):
            raise Rejected(index, error_of(answer))
        zxid = getattr(answer, "mzxid", zxid)
    return zxid


def error_of(error: Exception) -> ZooKeeperError:
    for classes, ours in _ERRORS:
        if isinstance(error, classes):
            return ours(ours.__doc__)
    return ZooKeeperError(f"ZooKeeper answered {type(error).__name__} {error}".rstrip())
