"""Accepts connections within the limits, and closes those that are idle or stuck."""

from __future__ import annotations

import asyncio
import errno
import logging
import select
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ottla.errors import OttlaError
from ottla.net.buffers import BufferPool
from ottla.net.server.channel import Channel, PlainChannel
from ottla.net.server.connection import Connection, FrameHandler
from ottla.net.server.few_lines import FewLines
from ottla.net.server.handshakes import Handshakes
from ottla.net.server.memory import Keeper
from ottla.net.server.receiving import Readers, readers_of
from ottla.net.server.sending import Sending
from ottla.net.server.turn import Turn

logger = logging.getLogger("ottla.net")
#: If so many connections have responses, these leave before the end of the turn, so that their clients can continue.
MOST_WAITING = 256
#: From so many responses on, a thread sends them: waking it takes longer than sending a few. Only responses that wait
#: for a write arrive so close together that it pays. Rebalances of 500 members took a sixth longer with it.
MANY_ANSWERS = 32
POOLED_BYTES = 32 << 20
#: So many connections of clients that open them too fast are held until they are closed. More are closed at once.
MOST_REFUSED = 1_000
#: The other side has closed. macOS tells only errors.
_CLOSED = getattr(select, "POLLRDHUP", 0)
_OUT_OF_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits that protect the server."""

    max_request_size: int
    max_connections: int
    max_connections_from: Callable[[str], int]
    """How many connections one address may have."""
    idle_seconds: float
    receive_seconds: float
    """How long a request may take from its first byte to its last."""
    authentication_seconds: float = 30.0
    """How long a client may take for the TLS handshake and to authenticate."""
    max_strangers_per_ip: int = 1_000
    """How many connections one address may have whose clients have not authenticated yet."""
    backlog: int = 50
    send_buffer: int = -1
    receive_buffer: int = -1


class ConnectionRates(Protocol):
    """Limits how fast connections are accepted."""

    def accepted(self, listener: str, host: str) -> tuple[float, float]:
        """Count a connection; return for how many seconds it waits, and after how many it is closed, both 0 if not."""


class Server:
    """Accepts connections on one address and handles their frames.

    ``handler(connection, frame)`` returns the response, an awaitable of it, or None for no response. The frame is only
    valid until the handler returns. ``name`` is the name of the listener. ``on_connect`` may give a new connection
    another handler and a smaller limit of requests until its client has authenticated.
    """

    def __init__(
        self,
        handler: FrameHandler,
        limits: Limits,
        turn: Turn | None = None,
        new_channel: Callable[[socket.socket], Channel] = PlainChannel,
        *,
        name: str = "PLAINTEXT",
        on_connect: Callable[[Connection], None] | None = None,
    ) -> None:
        self.handler = handler
        self._new_channel = new_channel
        self.name = name
        self._on_connect = on_connect
        self.turn = turn or Turn()
        self.limits = limits
        self.rates: ConnectionRates | None = None
        self._waiting: set[socket.socket] = set()
        """Connections that were accepted too fast."""
        self.max_request_size = limits.max_request_size
        self.loop: asyncio.AbstractEventLoop
        self.readers: Readers
        self.pool = BufferPool(POOLED_BYTES)
        self.connections: set[Connection] = set()
        self.bytes_in = 0
        self.bytes_out = 0
        self.accepted = 0
        self.refused = 0
        self.failures = 0
        self.failed_handshakes = 0
        self.host = ""
        self.port = 0
        self._complaints = FewLines(logger)
        self.handshakes: Handshakes
        self._per_ip: Counter[str] = Counter()
        self.strangers: Counter[str] = Counter()
        """How many connections of each address have not authenticated."""
        self._socket: socket.socket | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._keeper = Keeper()
        self.sending = Sending()
        self._answered: list[Connection] = []
        """Connections with responses that leave at the end of the turn."""

    async def start(self, host: str, port: int) -> None:
        """Listen on an address; port 0 picks a free one."""
        self.loop = asyncio.get_running_loop()
        self.readers = readers_of(self.loop, self.turn)
        self.handshakes = Handshakes(self.loop)
        try:
            self._socket = await _listen(host, port, self.limits)
        except BaseException:
            self.readers.close()
            raise
        self.host = host
        self.port = self._socket.getsockname()[1]

    def serve(self) -> None:
        """Start to accept connections."""
        assert self._socket is not None
        self.sending.start(self.loop)
        self.loop.add_reader(self._socket.fileno(), self._accept)
        self._sweep()

    def _accept(self) -> None:
        assert self._socket is not None
        for _ in range(64):
            try:
                sock, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _OUT_OF_FILES:
                    raise
                self._rest_from_accepting(error)
                return
            if self.rates is None:
                self._admit(sock, address[0], address[1])
            elif not self._admit_slowly(self.rates, sock, address[0], address[1]):
                return

    def _admit_slowly(self, rates: ConnectionRates, sock: socket.socket, host: str, port: int) -> bool:
        """Admit a connection within the rates. Return whether others can follow at once."""
        assert self._socket is not None
        wait, close_after = rates.accepted(self.name, host)
        if close_after:
            # As in Kafka: a client that opens too many would open the next one as soon as it knows.
            self.refused += 1
            if len(self._waiting) >= MOST_REFUSED:
                sock.close()
            else:
                self._waiting.add(sock)
                self.loop.call_later(close_after, self._close_waiting, sock)
        elif wait:
            self._waiting.add(sock)
            self.loop.remove_reader(self._socket.fileno())
            self.loop.call_later(wait, self._admit_waiting, sock, host, port)
            return False
        else:
            self._admit(sock, host, port)
        return True

    def _close_waiting(self, sock: socket.socket) -> None:
        self._waiting.discard(sock)
        sock.close()

    def _admit_waiting(self, sock: socket.socket, host: str, port: int) -> None:
        if self._socket is not None:
            self._waiting.discard(sock)
            self._admit(sock, host, port)
            self.loop.add_reader(self._socket.fileno(), self._accept)

    def _rest_from_accepting(self, error: OSError) -> None:
        assert self._socket is not None
        fd = self._socket.fileno()
        logger.error("out of file descriptors or memory (%s): no connections accepted for a second", error.strerror)
        self.loop.remove_reader(fd)
        self.loop.call_later(1.0, lambda: self._socket is not None and self.loop.add_reader(fd, self._accept))

    def _admit(self, sock: socket.socket, host: str, port: int) -> None:
        limits = self.limits
        if len(self.connections) >= limits.max_connections:
            self._refuse(sock, host, f"there are {len(self.connections)} already (max.connections)")
        elif self._per_ip[host] >= limits.max_connections_from(host):
            self._refuse(sock, host, f"{self._per_ip[host]} come from this address already (max.connections.per.ip)")
        elif self.strangers[host] >= limits.max_strangers_per_ip:
            name = "ottla.authentication.max.connections.per.ip"
            self._refuse(sock, host, f"{self.strangers[host]} from this address have not authenticated ({name})")
        else:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self.accepted += 1
            self._per_ip[host] += 1
            connection = Connection(self, self._new_channel(sock), host, port)
            self.connections.add(connection)
            if self._on_connect is not None:
                self._on_connect(connection)

    def _refuse(self, sock: socket.socket, host: str, why: str) -> None:
        self.refused += 1
        self._complaints.warning("connection from %s refused: %s", host, why)
        sock.close()

    def closed(self, connection: Connection, reason: str, *, expected: bool) -> None:
        """Remove a closed connection."""
        self.connections.discard(connection)
        self._per_ip[connection.client_host] -= 1
        if not self._per_ip[connection.client_host]:
            del self._per_ip[connection.client_host]
            self.strangers.pop(connection.client_host, None)
        self.log_end(connection, reason, expected=expected)

    def log_end(self, connection: Connection, reason: str, *, expected: bool = False) -> None:
        """Log why a connection is closed, if there is a reason."""
        if reason:
            log = logger.debug if expected else self._complaints.warning
            log("connection from %s:%s closed: %s", connection.client_host, connection.client_port, reason)

    def complain(self, connection: Connection, problem: str) -> None:
        """Log a mistake of a client whose connection stays open for now."""
        self._complaints.warning("connection from %s:%s: %s", connection.client_host, connection.client_port, problem)

    def send_soon(self, connection: Connection) -> None:
        """Send the responses of a connection at the end of this turn of the event loop, or when many are waiting."""
        if not self._answered:
            self.loop.call_soon(self._send_answers)
        self._answered.append(connection)
        if len(self._answered) >= MOST_WAITING:
            self._send_answers()

    def _send_answers(self) -> None:
        connections, self._answered = self._answered, []
        waited_for_write = self.turn.unwritten or self.turn.has_written
        # If the thread is sending anyway, it need not be woken.
        if waited_for_write and (len(connections) >= MANY_ANSWERS or self.sending.is_busy):
            self._hand_over(connections)
        else:
            for connection in connections:
                connection.flush()
        self.turn.has_written = False

    def _hand_over(self, connections: list[Connection]) -> None:
        """Let the thread send what it can, while the next requests are read here."""
        if self.turn.unwritten:
            self.turn.write()
        self.sending.make_room()
        taken: list[Connection] = []
        frames: list[bytearray] = []
        others: list[Connection] = []
        for connection in connections:
            if (frame := connection.take_frame()) is not None:
                taken.append(connection)
                frames.append(frame)
            else:
                others.append(connection)
        self.sending.hand_over(taken, frames)
        # Last, because this may close connections.
        for connection in others:
            connection.flush()

    def settle(self) -> None:
        """Wait until the thread has sent what it got."""
        if not self.sending.is_settled:
            self.sending.settle()

    def report_failure(self, connection: Connection, error: Exception) -> None:
        """Log an error that no handler expected."""
        self.failures += 1
        logger.error("a request from %s:%s failed", connection.client_host, connection.client_port, exc_info=error)

    def _sweep(self) -> None:
        """Close connections that have been idle, or in the middle of a request, for too long."""
        self._complaints.end_second()
        self._keeper.count(len(self.connections))
        now = self.loop.time()
        for connection in list(self.connections):
            if connection.is_receiving and now - connection.receiving_since > self.limits.receive_seconds:
                connection.close(f"the rest of a request did not come within {self.limits.receive_seconds:g} s")
            elif now > connection.known_by:
                connection.close("the client did not authenticate in time (ottla.authentication.timeout.ms)")
            elif not connection.is_busy and now - connection.last_active > self.limits.idle_seconds:
                connection.close(f"idle for {self.limits.idle_seconds:g} s", expected=True)
            elif connection.is_stuck and now - connection.last_active > self.limits.idle_seconds:
                connection.close(f"the client took nothing of a response for {self.limits.idle_seconds:g} s")
        self._close_gone([connection for connection in self.connections if connection.is_muted])
        limits = self.limits
        period = min(1.0, limits.idle_seconds / 4, limits.receive_seconds / 4, limits.authentication_seconds / 4)
        self._sweeper = self.loop.call_later(max(period, 0.01), self._sweep)

    def _close_gone(self, muted: list[Connection]) -> None:
        """Close connections that are not read now, and whose clients have closed them."""
        if not muted:
            return
        poll, by_fd = select.poll(), {connection.fd: connection for connection in muted}
        for fd in by_fd:
            poll.register(fd, _CLOSED)
        for fd, _ in poll.poll(0):
            by_fd[fd].close("the client closed while it had to pause", expected=True)

    async def stop(self) -> None:
        """Stop listening and close all connections."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        listening, self._socket = self._socket, None
        if listening is not None:
            self.loop.remove_reader(listening.fileno())
            listening.close()
        for sock in self._waiting:
            sock.close()
        self._send_answers()
        self.sending.close()
        for connection in list(self.connections):
            connection.close("", expected=True)
        if listening is not None:
            self.readers.close()
        await asyncio.sleep(0)


async def _listen(host: str, port: int, limits: Limits) -> socket.socket:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise OttlaError(f"cannot listen on {host}:{port}: {error.strerror}; check the host name") from error
    family, kind, protocol, _, address = found[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if limits.send_buffer > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.send_buffer)
        if limits.receive_buffer > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.receive_buffer)
        sock.setblocking(False)
        sock.bind(address)
        sock.listen(limits.backlog)
    except OSError as error:
        sock.close()
        raise OttlaError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another address, or port 0 for a free one"
        ) from error
    return sock
