"""One connection to the server.

It uses a non-blocking socket instead of a transport: the handler gets requests in the receive buffer without a copy,
and files are sent with ``sendfile``.

The responses of one turn of the event loop leave at its end, on all connections (``Server.send_soon``). Waking a client
for each response would take more time on both sides.

A connection handles one request at a time, in order. It reads nothing while a request is handled. TCP then slows down a
client that sends faster than it reads, and at most one request and one response are held here.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable
from struct import Struct as Layout
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ottla.net.server.channel import Channel
from ottla.net.server.outgoing import Outgoing
from ottla.net.server.receiving import LITTLE
from ottla.protocol.codec import Buffer

if TYPE_CHECKING:
    from ottla.net.server.listener import Server

_SIZE = Layout(">i")
#: The first two bytes of a TLS handshake.
_TLS_HELLO = 0x1603
#: A request has at least a header of this size.
SHORTEST = 8
#: How much memory a frame gets before so many of its bytes have arrived.
FIRST_ALLOCATION = 1 << 16
#: The same before the client has authenticated.
STRANGERS_ALLOCATION = 1 << 12
#: Responses wait for the end of the turn until they are this long.
ANSWERS_TOGETHER = 1 << 16

#: How long a connection stays open after its last answer.
LINGER_SECONDS = 0.1

Answer: TypeAlias = Buffer | None
FrameHandler: TypeAlias = "Callable[[Connection, memoryview], Answer | Later | Awaitable[Answer]]"


class Later(NamedTuple):
    """A response that a future brings. ``finish`` makes it from the future when that is done. It costs no task."""

    future: asyncio.Future[Any]
    finish: Callable[[asyncio.Future[Any]], Any]


class CloseConnection(Exception):
    """Raised by a handler to close the connection. The message goes to the log, ``answer`` to the client before."""

    def __init__(self, reason: str, answer: Answer = None) -> None:
        super().__init__(reason)
        self.answer = answer


class Connection:
    """A client's connection: receives frames, has them handled in order, sends the responses."""

    __slots__ = (
        "_busy", "_closed", "_finish", "_first_allocation", "_known_by", "_loop", "_mute", "_outgoing", "_reading",
        "_receive_to", "_server", "_task", "_writing", "buffer", "channel", "client_host", "client_port",
        "client_software", "fd", "filled", "frame_hint", "handler", "last_active", "max_request_size", "may_pause",
        "min_request_size", "receiving_since",
    )  # fmt: skip

    def __init__(self, server: Server, channel: Channel, host: str, port: int) -> None:
        self._server = server
        self.channel = channel
        self.fd = channel.fd
        self.handler = server.handler
        """Handles the next frame. Authentication uses one of its own until the client is known."""
        self.max_request_size = server.max_request_size
        self.min_request_size = SHORTEST
        self.may_pause = True
        """Whether a quota may mute it. Those of other brokers are never muted."""
        self._loop = server.loop
        self._outgoing = Outgoing(channel)
        self._busy = False
        self._writing = False
        self._closed = False
        self._reading = True
        self._mute: asyncio.TimerHandle | None = None
        """Ends the pause of a client that has used too much."""
        self._task: asyncio.Future[Any] | None = None
        self._finish: Callable[[asyncio.Future[Any]], Answer] = asyncio.Future.result
        self.client_host = host
        self.client_port = port
        self.client_software = ("", "")
        self.buffer: bytearray | None = None
        self.filled = 0
        self.frame_hint = 0
        self._first_allocation = FIRST_ALLOCATION
        self._receive_to = FIRST_ALLOCATION
        """The end of what is received now: a large frame is received up to its end, so that the next need not move."""
        self.last_active = self.receiving_since = self._loop.time()
        self._known_by = math.inf
        if not channel.is_established:
            self.known_by = self.last_active + server.limits.authentication_seconds
        server.readers.add(self)

    @property
    def listener(self) -> str:
        """The name of the listener that the client connected to."""
        return self._server.name

    @property
    def known_by(self) -> float:
        """When the connection is closed because the client has not authenticated, by the clock of the event loop.

        Infinite if it has, or need not.
        """
        return self._known_by

    @known_by.setter
    def known_by(self, time: float) -> None:
        self._server.strangers[self.client_host] += (time != math.inf) - (self._known_by != math.inf)
        self._known_by = time
        self._first_allocation = FIRST_ALLOCATION if time == math.inf else STRANGERS_ALLOCATION

    @property
    def is_receiving(self) -> bool:
        """Whether a part of a request has arrived and the rest has not."""
        return self.filled > 0 and not self._busy

    @property
    def is_busy(self) -> bool:
        """Whether a request is being handled."""
        return self._busy

    @property
    def is_stuck(self) -> bool:
        """Whether a response waits for the client to read."""
        return self._outgoing.size > 0

    # ── receiving ─────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def expects_little(self) -> bool:
        """Whether `received` may be called with what the socket has: a new request that is probably short."""
        return self.buffer is None and self.frame_hint <= LITTLE and not self._busy and self.channel.is_plain

    def received(self, data: memoryview, now: float) -> None:
        """Take bytes that were received together with those of other connections."""
        if self._closed:
            return
        size = len(data)
        self._server.bytes_in += size
        self.last_active = self.receiving_since = now
        # Usually it is one request, and the connection is not busy; it may have become busy since.
        fits = 4 + SHORTEST <= size <= self.max_request_size and not self._busy
        if fits and _SIZE.unpack_from(data)[0] == size - 4:
            self.frame_hint = size
            self._handle(data[4:])
            return
        self._receive_to = max(self._first_allocation, size)
        self.buffer = self._server.pool.take(self._receive_to)
        self.buffer[:size] = data
        self.filled = size
        if not self._busy:
            self._process(0)

    def readable(self) -> None:
        """Receive what has arrived."""
        if self._closed:
            return
        if not self.channel.is_established:
            self._server.readers.remove(self)
            self._server.handshakes.add(self)
            return
        if self._busy:
            # Most clients wait for the response before they send more. Stop reading from one that does not.
            self._reading = False
            self._server.readers.remove(self)
            return
        buffer = self.buffer
        if buffer is None:
            self._receive_to = max(self._first_allocation, self.frame_hint)
            buffer = self.buffer = self._server.pool.take(self._receive_to)
        filled = self.filled
        try:
            count = self.channel.receive_into(memoryview(buffer)[filled : self._receive_to])
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.receiving_ended(str(error.strerror))
            return
        if count == 0:
            self.receiving_ended()
            return
        self._server.bytes_in += count
        self.filled = filled + count
        self.last_active = self._loop.time()
        if not filled:
            self.receiving_since = self.last_active
        self._process(0)
        if not self.channel.is_plain:
            self._read_on()

    def _read_on(self) -> None:
        """Read again if the channel holds bytes that the event loop does not know of."""
        if self.channel.has_more and not self._busy and not self._closed:
            self._loop.call_soon(self.readable)

    def shake_hands(self) -> None:
        """Go on with the handshake of the channel; the server calls it when its turn comes."""
        if self._closed:
            return
        try:
            self.channel.shake_hands()
        except (BlockingIOError, InterruptedError):
            self._server.readers.add(self)
            self._flush_handshake()
            return
        except OSError as error:
            self._server.failed_handshakes += 1
            self.close(str(error.strerror), expected=getattr(error, "is_expected", True))
            return
        except Exception as error:
            self._server.report_failure(self, error)
            self.close("the handshake could not be handled")
            return
        self.last_active = self.receiving_since = self._loop.time()
        if self.handler == self._server.handler:
            self.known_by = math.inf
        self._server.readers.add(self)
        self._flush_handshake()
        self._read_on()

    def _flush_handshake(self) -> None:
        """Send the rest of a message of the handshake. Long chains of certificates may not fit into the socket."""
        try:
            self.channel.flush()
        except BlockingIOError:
            self._loop.add_writer(self.fd, self._flush_handshake)
        except OSError as error:
            self.close(f"sending failed: {error}", expected=True)
        else:
            self._loop.remove_writer(self.fd)

    def receiving_ended(self, problem: str = "") -> None:
        """Close the connection after the client has closed it, or because it is broken."""
        if problem:
            problem = f"receiving failed: {problem}"
        elif self.filled:
            problem = "the client closed in the middle of a request"
        self.close(problem, expected=True)

    def _process(self, position: int) -> None:
        """Handle the complete frames in the buffer from a position on, until one must wait."""
        buffer = self.buffer
        assert buffer is not None
        while self.filled - position >= 4:
            (size,) = _SIZE.unpack_from(buffer, position)
            if not self.min_request_size <= size <= self.max_request_size:
                self._refuse_size(size)
                return
            end = position + 4 + size
            if end > self.filled:
                self._make_room(position, 4 + size)
                return
            self.frame_hint = size + 4
            if not self._handle(memoryview(buffer)[position + 4 : end]):
                if self._busy:
                    self._keep_rest(end)
                return
            position = end
        self._keep_rest(position)

    def _refuse_size(self, size: int) -> None:
        if size >> 16 == _TLS_HELLO and self.channel.is_plain:
            # Closing is what clients explain best: they cannot read an answer of this protocol.
            self.close(
                "the client speaks TLS, but this listener does not: set its security.protocol, or use another port"
            )
            return
        limit = self.max_request_size
        name = "socket.request.max.bytes" if self.known_by == math.inf else "sasl.server.max.receive.size"
        self.close(f"a request of {size} bytes; between {self.min_request_size} and {limit} ({name}) are allowed")

    def _make_room(self, position: int, size: int) -> None:
        """Move a partly received frame to the front of a buffer that can hold more of it."""
        buffer, have = self.buffer, self.filled - position
        assert buffer is not None
        first = self._first_allocation
        wanted = min(size, max(first, 2 * have, self.frame_hint))
        if len(buffer) - position >= max(wanted, have + 1):
            if position:
                self._keep_rest(position)
        else:
            larger = self._server.pool.take(max(first, wanted))
            larger[:have] = memoryview(buffer)[position : self.filled]
            self._server.pool.give(buffer)
            self.buffer, self.filled = larger, have
        self._receive_to = max(first, wanted)

    def _keep_rest(self, position: int) -> None:
        """Drop what has been handled. An idle connection holds no buffer."""
        buffer = self.buffer
        if buffer is None:
            return
        rest = self.filled - position
        if rest:
            if position:
                view = memoryview(buffer)
                view[:rest] = view[position : self.filled]
        else:
            self._server.pool.give(buffer)
            self.buffer = None
        self.filled = rest

    # ── handling ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _handle(self, frame: memoryview) -> bool:
        """Handle one frame; return whether the next may follow immediately."""
        try:
            answer = self.handler(self, frame)
            if isinstance(answer, Buffer):
                return self._send(answer) and not self._rests()
        except CloseConnection as error:
            self._close_with(error)
            return False
        except Exception as error:
            self._server.report_failure(self, error)
            self._outgoing.clear()  # It may report something that did not happen.
            self.close("a request could not be handled")
            return False
        if answer is None:
            return not (self._closed or self._rests())
        self._busy = True
        if isinstance(answer, Later):
            self._task, self._finish = answer
        else:
            self._task, self._finish = asyncio.ensure_future(answer, loop=self._loop), asyncio.Future.result
        self._task.add_done_callback(self._answered)
        return False

    def _answered(self, task: asyncio.Future[Any]) -> None:
        self._task = None
        if self._closed and task.cancelled():
            return
        try:
            answer = self._finish(task)
        except CloseConnection as error:
            self._close_with(error)
            return
        except asyncio.CancelledError:
            self.close("")
            return
        except Exception as error:
            self._server.report_failure(self, error)
            self.close("a request could not be handled")
            return
        if self._closed:
            return
        # If earlier responses still wait for the socket, `_writable` sends this one after them and continues.
        if (answer is None or self._send(answer)) and not self._writing:
            self._go_on()

    def mute(self, seconds: float) -> None:
        """Handle no other request for a while. The response to the current one leaves at once."""
        if self._closed:
            return
        if self._mute is not None:
            seconds = max(seconds, self._mute.when() - self._loop.time())
            self._mute.cancel()
        self._mute = self._loop.call_later(seconds, self._unmute)

    @property
    def is_muted(self) -> bool:
        """Whether the client must pause."""
        return self._mute is not None

    def _unmute(self) -> None:
        self._mute = None
        if self._busy and not self._writing and self._task is None and not self._closed:
            self._go_on()

    def _rests(self) -> bool:
        if self._mute is None:
            return False
        self._busy = True
        return True

    def _go_on(self) -> None:
        if self._mute is not None:
            return
        self._busy = False
        self.last_active = self._loop.time()
        if self.filled:
            self.receiving_since = self.last_active
            self._process(0)
        if not self._busy and not self._closed and not self._reading:
            self._reading = True
            self._server.readers.add(self)
        if not self.channel.is_plain:
            self._read_on()

    # ── sending ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _send(self, frame: Buffer) -> bool:
        """Queue a response; return whether the next request may be handled immediately."""
        is_first = not self._outgoing.size
        try:
            self._server.bytes_out += self._outgoing.put(frame)
        except OSError as error:
            self.close(f"a response could not be read from its file: {error}")
            return False
        if self._outgoing.size >= ANSWERS_TOGETHER:
            return self.flush()
        if is_first:
            self._server.send_soon(self)
        return not (self._writing or self._closed)

    def flush(self) -> bool:
        """Send what is queued; return whether all of it was sent. If not, nothing more is read until it is."""
        self._server.settle()
        if self._writing or self._closed:
            return False
        try:
            done = self._flush()
        except OSError as error:
            self.close(f"sending failed: {error}", expected=True)
            return False
        if not done:
            self._busy = True
            self._writing = True
            self._loop.add_writer(self.fd, self._writable)
        return done

    def _flush(self) -> bool:
        turn = self._server.turn
        if turn.unwritten:
            turn.write()
        return self._outgoing.flush()

    def take_frame(self) -> Buffer | None:
        """Return what is queued if it is one frame that the thread can send; `not_sent` brings the rest back."""
        return None if self._writing or not self.channel.is_plain else self._outgoing.take_frame()

    def not_sent(self, frames: list[memoryview]) -> None:
        """Send the rest of what `take_frame` gave. Nothing has been sent since."""
        if not frames[0]:
            self.close("a response was lost")
            return
        self._outgoing.put_back(frames)
        self.flush()

    def _writable(self) -> None:
        before = self._loop.time()
        try:
            done = self._flush()
        except OSError as error:
            self.close(f"sending failed: {error}", expected=True)
            return
        self.last_active = before
        if done:
            self._writing = False
            self._loop.remove_writer(self.fd)
            if self._task is None:
                self._go_on()

    def complain(self, problem: str) -> None:
        """Log a mistake of the client, unless the log has many such lines already."""
        self._server.complain(self, problem)

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _close_with(self, error: CloseConnection) -> None:
        """Close the connection, after a last answer if there is one.

        Some clients do not look at an answer that arrives together with the end of the connection.
        """
        if error.answer is None or self._closed:
            self.close(str(error))
            return
        self._server.log_end(self, str(error))
        self._busy = True
        self.handler = _refuse
        self._send(error.answer)
        self._loop.call_later(LINGER_SECONDS, self.close, "")

    def close(self, reason: str, *, expected: bool = False) -> None:
        """Close the connection, with a log line if there is a reason, and cancel what it waits for."""
        self._server.settle()
        if self._closed:
            return
        self._closed = True
        self.known_by = math.inf
        self._server.readers.remove(self)
        self._loop.remove_writer(self.fd)
        if self._mute is not None:
            self._mute.cancel()
            self._mute = None
        if self._outgoing.size:
            with contextlib.suppress(OSError):
                self._flush()  # The responses to earlier requests.
            self._outgoing.clear()
        if self._task is not None:
            self._task.cancel()
        self.buffer = None
        self.filled = 0
        # First, so that whoever sees the end finds the reason in the log.
        self._server.closed(self, reason, expected=expected)
        self.channel.close()


def _refuse(connection: Connection, frame: memoryview) -> Answer:
    """Handle a frame of a client that has got its last answer."""
    raise CloseConnection("")
