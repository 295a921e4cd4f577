"""One client connection to one broker: framing, version negotiation, requests matched to their responses.

    open ──> ApiVersions (the newest we know; else the newest that the broker knows) ──> request, request, ...

Requests are pipelined: many may be in flight, each waits for the response with its correlation id. A
request that is not answered in time closes the connection, because everything sent after it would wait for
it as well. What to ask, whom, and what to do with an error code is decided above, in `ottla.clients`. TLS
and SASL layers belong here.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ottla import __version__
from ottla.errors import NetworkException, OttlaError, RequestTimedOut, UnsupportedVersion
from ottla.protocol import codec
from ottla.protocol.apis import ApiKey, api
from ottla.types import Millis

DEFAULT_CONNECT_TIMEOUT_MS: Millis = 10_000
DEFAULT_REQUEST_TIMEOUT_MS: Millis = 30_000
CLOSE_TIMEOUT_MS: Millis = 5_000
MAX_RESPONSE_BYTES = 256 * 1024 * 1024
_UNSUPPORTED_VERSION = 35


def api_title(api_key: int) -> str:
    """Kafka's own name of an API.

    >>> api_title(ApiKey.LIST_OFFSETS)
    'ListOffsets'
    """
    return "".join(word.capitalize() for word in api(api_key).name.split("_"))


class CannotConnect(NetworkException):
    """No connection could be made, or nobody answered on it."""


class Disconnected(NetworkException):
    """The connection was lost before the answer came."""


class NotKafka(OttlaError):
    """Something listens there, but it does not speak Kafka's plain protocol."""


@dataclass(slots=True)
class _InFlight:
    api_key: int
    version: int
    answer: asyncio.Future[codec.Struct]
    expiry: asyncio.TimerHandle


class Connection:
    """A connection that has agreed on versions (`Connection.open`), for all tasks of one event loop."""

    def __init__(self, host: str, port: int, *, client_id: str, request_timeout_ms: Millis) -> None:
        self.host = host
        self.port = port
        self.client_id = client_id
        self.request_timeout_ms = request_timeout_ms
        self.api_versions: dict[int, tuple[int, int]] = {}
        self._in_flight: dict[int, _InFlight] = {}
        self._next_correlation_id = 0
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._failure: OttlaError | None = None

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str = "ottla",
        request_timeout_ms: Millis = DEFAULT_REQUEST_TIMEOUT_MS,
        connect_timeout_ms: Millis = DEFAULT_CONNECT_TIMEOUT_MS,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
    ) -> Connection:
        """Connect and agree on versions, or say what is wrong with the address."""
        connection = cls(host, port, client_id=client_id, request_timeout_ms=request_timeout_ms)
        try:
            async with asyncio.timeout(connect_timeout_ms / 1000):
                await connection._connect(max_response_bytes)
        except TimeoutError:
            raise CannotConnect(
                f"{connection.address} did not accept a connection within {connect_timeout_ms / 1000:g} s: "
                "check the address and that no firewall drops the traffic"
            ) from None
        try:
            await connection._negotiate(min(request_timeout_ms, connect_timeout_ms))
        except BaseException:
            await connection.close()
            raise
        return connection

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def closed(self) -> bool:
        return self._failure is not None

    @property
    def in_flight(self) -> int:
        """Requests that wait for their responses."""
        return len(self._in_flight)

    def version_of(self, api_key: int, *, at_most: int | None = None) -> int:
        """The newest version of an API that both sides speak."""
        _, _, first, last, _ = api(api_key)
        name = api_title(api_key)
        if api_key not in self.api_versions:
            raise UnsupportedVersion(f"the broker at {self.address} does not serve {name}: it may be too old for this")
        served_first, served_last = self.api_versions[api_key]
        version = min(last, served_last, last if at_most is None else at_most)
        if version < max(first, served_first):
            raise UnsupportedVersion(
                f"the broker at {self.address} serves {name} in versions {served_first} to {served_last}, "
                f"this client speaks {first} to {last}: one of the two has to be upgraded"
            )
        return version

    async def request(
        self,
        api_key: int,
        message: codec.Message,
        *,
        at_most: int | None = None,
        timeout_ms: Millis | None = None,
    ) -> codec.Struct:
        """Send one request in the newest common version (not above `at_most`) and wait for its response."""
        version = self.version_of(api_key, at_most=at_most)
        return await self._exchange(
            api_key, version, message, self.request_timeout_ms if timeout_ms is None else timeout_ms
        )

    async def send(self, api_key: int, message: codec.Message, *, at_most: int | None = None) -> None:
        """Send a request that has no response: Produce with acks=0."""
        version = self.version_of(api_key, at_most=at_most)
        await self._write(self._encode(api_key, version, message)[1])

    async def close(self) -> None:
        """Close when everything written is sent, which matters to requests that have no response."""
        transport = self._transport
        if transport is not None and self._failure is None:
            transport.close()
            await asyncio.wait([self._lost], timeout=CLOSE_TIMEOUT_MS / 1000)
        self._fail(Disconnected(f"the connection to {self.address} was closed"))
        if transport is not None:
            await self._lost

    async def _connect(self, max_response_bytes: int) -> None:
        loop = asyncio.get_running_loop()
        problem: OSError | None = None
        for family, _, _, _, address in await self._resolve():
            try:
                transport, _ = await loop.create_connection(
                    lambda: _Frames(self, max_response_bytes), address[0], address[1], family=family
                )
            except OSError as error:
                problem = error
            else:
                self._transport = transport
                return
        raise CannotConnect(_why_not_connected(self.address, problem))

    async def _resolve(self) -> list[tuple[Any, ...]]:
        loop = asyncio.get_running_loop()
        try:
            return list(await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM))
        except (socket.gaierror, UnicodeError):
            raise CannotConnect(f"the host name {self.host!r} cannot be resolved: check how it is spelt") from None

    async def _negotiate(self, timeout_ms: Millis) -> None:
        message = {"client_software_name": "ottla", "client_software_version": __version__}
        version = api(ApiKey.API_VERSIONS).last
        try:
            answer = await self._exchange(ApiKey.API_VERSIONS, version, message, timeout_ms)
            if answer.error_code == _UNSUPPORTED_VERSION:
                version = _version_to_fall_back_to(answer, version)
                answer = await self._exchange(ApiKey.API_VERSIONS, version, message, timeout_ms)
        except (Disconnected, RequestTimedOut) as error:
            # Maybe a broker that is just starting or ending: who knows it to be one may try again.
            raise CannotConnect(_why_no_answer(self.address, error)) from None
        if answer.error_code:
            raise NotKafka(
                f"the broker at {self.address} refused to say what it serves (error code {answer.error_code})"
            )
        self.api_versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    async def _exchange(self, api_key: int, version: int, message: codec.Message, timeout_ms: Millis) -> codec.Struct:
        loop = asyncio.get_running_loop()
        correlation_id, frame = self._encode(api_key, version, message)
        answer: asyncio.Future[codec.Struct] = loop.create_future()
        expiry = loop.call_later(timeout_ms / 1000, self._expire, correlation_id, timeout_ms)
        self._in_flight[correlation_id] = _InFlight(api_key, version, answer, expiry)
        try:
            await self._write(frame)
        except BaseException:
            expiry.cancel()
            self._in_flight.pop(correlation_id, None)
            answer.cancel()
            raise
        return await answer

    def _encode(self, api_key: int, version: int, message: codec.Message) -> tuple[int, codec.Buffer]:
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        return correlation_id, codec.encode_request(api_key, version, correlation_id, self.client_id, message)

    async def _write(self, frame: codec.Buffer) -> None:
        while not self._writable.is_set() and self._failure is None:
            await self._writable.wait()
        if self._failure is not None or self._transport is None:
            raise self._failure or Disconnected()
        self._transport.write(frame)

    # What the framing tells us.

    def frame_received(self, frame: bytes | bytearray) -> None:
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        waiting = self._in_flight.pop(correlation_id, None)
        if waiting is None:
            self._fail(NotKafka(f"{self.address} answered a request that was never sent: it is no Kafka broker"))
            return
        waiting.expiry.cancel()
        if waiting.answer.done():
            return
        try:
            waiting.answer.set_result(_decode(waiting, frame))
        except codec.DecodeError as error:
            failure = NotKafka(f"{self.address} sent a response that cannot be read: {error}")
            waiting.answer.set_exception(failure)
            self._fail(failure)

    def bad_frame(self, start: bytes) -> None:
        self._fail(NotKafka(_who_speaks(self.address, start)))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, error: Exception | None) -> None:
        reason = f": {error}" if error is not None else ""
        self._fail(Disconnected(f"the broker at {self.address} closed the connection{reason}"))
        if not self._lost.done():
            self._lost.set_result(None)

    def _expire(self, correlation_id: int, timeout_ms: Millis) -> None:
        waiting = self._in_flight.pop(correlation_id)
        name = api_title(waiting.api_key)
        message = f"the broker at {self.address} did not answer {name} within {timeout_ms / 1000:g} s"
        if not waiting.answer.done():
            waiting.answer.set_exception(RequestTimedOut(message))
        self._fail(Disconnected(message))

    def _fail(self, failure: OttlaError) -> None:
        """Close once, and give everybody who waits the first reason."""
        if self._failure is not None:
            return
        self._failure = failure
        self._writable.set()
        waiting, self._in_flight = self._in_flight, {}
        for one in waiting.values():
            one.expiry.cancel()
            if not one.answer.done():
                one.answer.set_exception(failure)
        if self._transport is not None:
            self._transport.abort()


class _Frames(asyncio.BufferedProtocol):
    """Cuts the stream at the four-byte sizes. Small responses share a buffer, a large one has its own."""

    def __init__(self, connection: Connection, max_bytes: int) -> None:
        self._connection = connection
        self._max_bytes = max_bytes
        self._buffer = bytearray(64 * 1024)
        self._end = 0
        self._frame: bytearray | None = None
        self._filled = 0

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frame is not None:
            return memoryview(self._frame)[self._filled :]
        return memoryview(self._buffer)[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._frame is None:
            self._end += nbytes
            self._cut()
            return
        self._filled += nbytes
        if self._filled == len(self._frame):
            frame, self._frame = self._frame, None
            self._connection.frame_received(frame)

    def _cut(self) -> None:
        start, buffer = 0, self._buffer
        while self._end - start >= 4:
            size = int.from_bytes(buffer[start : start + 4], "big", signed=True)
            if not 4 <= size <= self._max_bytes:
                self._connection.bad_frame(bytes(buffer[start : self._end]))
                start = self._end
                break
            body = start + 4
            if self._end - body < size:
                self._begin_large(memoryview(buffer)[body : self._end], size)
                start = self._end
                break
            start = body + size
            self._connection.frame_received(bytes(buffer[body:start]))
        rest = self._end - start
        buffer[:rest] = buffer[start : self._end]
        self._end = rest

    def _begin_large(self, received: memoryview, size: int) -> None:
        self._frame = bytearray(size)
        self._filled = len(received)
        self._frame[: self._filled] = received

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)


def _decode(waiting: _InFlight, frame: bytes | bytearray) -> codec.Struct:
    """A broker that does not know our ApiVersions answers in version 0: only the error code tells."""
    version = waiting.version
    if (
        waiting.api_key == ApiKey.API_VERSIONS
        and int.from_bytes(frame[4:6], "big", signed=True) == _UNSUPPORTED_VERSION
    ):
        version = 0
    return codec.decode_response(waiting.api_key, version, frame)


def _version_to_fall_back_to(answer: codec.Struct, tried: int) -> int:
    served = [api.max_version for api in answer.api_keys if api.api_key == ApiKey.API_VERSIONS]
    return min(served[0], tried - 1) if served else 0


def _why_not_connected(address: str, problem: OSError | None) -> str:
    if isinstance(problem, ConnectionRefusedError):
        return f"nothing listens at {address}: check the address and that the broker is running"
    code = problem.errno if problem is not None else None
    if code in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return f"{address} cannot be reached from this machine: check the address and the network"
    return f"cannot connect to {address}: {problem or 'it has no address'}"


def _why_no_answer(address: str, error: OttlaError) -> str:
    return (
        f"{address} accepted the connection but did not answer as a Kafka broker does ({error}): "
        "check that this is the port of a PLAINTEXT listener"
    )


_SPEAKERS: tuple[tuple[Callable[[bytes], bool], str], ...] = (
    (
        lambda start: start.startswith(b"HTTP/"),
        "speaks HTTP: use the port of the Kafka listener, not of a web page",
    ),
    (lambda start: start.startswith(b"SSH-"), "speaks SSH: use the port of the Kafka listener"),
    (
        lambda start: 0x14 <= start[0] <= 0x17 and start[1] == 3,
        "speaks TLS, which this client does not: use the port of a PLAINTEXT listener",
    ),
)


def _who_speaks(address: str, start: bytes) -> str:
    for recognises, hint in _SPEAKERS:
        if recognises(start):
            return f"{address} {hint}"
    size = int.from_bytes(start[:4], "big")
    return (
        f"{address} sent something that is no Kafka response (a size of {size:,} bytes): "
        "check that this is the port of a Kafka broker"
    )
