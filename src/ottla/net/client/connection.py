"""One client connection to one broker: version negotiation, authentication, requests matched to responses.

    TCP ──> TLS, if configured ──> ApiVersions (our newest version, else the broker's newest)
        ──> SaslHandshake, SaslAuthenticate, if configured ──> request, request, ...

Requests are pipelined: each waits for the response with its correlation id. A request without a response in time closes
the connection, because later responses would wait behind it. `ottla.clients` decides what to send to which broker, and
handles error codes.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ottla import __version__
from ottla.errors import AuthenticationError, IllegalSaslState, OttlaError, RequestTimedOut, UnsupportedVersion
from ottla.net.client.errors import (
    CannotConnect,
    ClosedAtOnce,
    Disconnected,
    NoAnswer,
    NotKafka,
    TlsFailed,
    api_title,
    who_speaks,
    why_closed_at_once,
    why_no_answer,
)
from ottla.net.client.frames import Frame, Frames
from ottla.net.client.sasl import authenticate
from ottla.net.client.security import PLAINTEXT, Security
from ottla.net.client.tls import tls_failure
from ottla.net.client.transport import OS_BUFFER, address_of, open_transport
from ottla.protocol import codec
from ottla.protocol.apis import ApiKey, api
from ottla.types import Millis

__all__ = ["CannotConnect", "Connection", "Disconnected", "NotKafka", "Records", "TlsFailed", "api_title"]

DEFAULT_CONNECT_TIMEOUT_MS: Millis = 10_000
DEFAULT_REQUEST_TIMEOUT_MS: Millis = 30_000
CLOSE_TIMEOUT_MS: Millis = 5_000
MAX_RESPONSE_BYTES = 256 * 1024 * 1024
#: A session is renewed after this part of its lifetime, as in Kafka's clients: early, and not all at once.
RENEW_AFTER = (0.85, 0.95)
_UNSUPPORTED_VERSION = 35


class Records:
    """Record batches that are written to the socket without a copy into the request.

    Do not change them until the response has arrived.
    """

    __slots__ = ("data", "length")

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self.data = data
        self.length = len(data)


@dataclass(slots=True)
class _InFlight:
    api_key: int
    version: int
    answer: asyncio.Future[codec.Struct]
    expiry: asyncio.TimerHandle


class Connection:
    """A connection with negotiated versions, for all tasks of one event loop. Create it with `Connection.open`."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        request_timeout_ms: Millis,
        security: Security = PLAINTEXT,
        on_closed: Callable[[], None] | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self.client_id = client_id
        self.request_timeout_ms = request_timeout_ms
        self.security = security
        self.api_versions: dict[int, tuple[int, int]] = {}
        self.features: dict[str, int] = {}
        """The enabled features of the cluster, and their levels."""
        self._loop = asyncio.get_running_loop()
        self._on_closed = on_closed
        self._in_flight: dict[int, _InFlight] = {}
        self._next_correlation_id = 0
        self._answers = 0
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._lost: asyncio.Future[None] = self._loop.create_future()
        self._failure: OttlaError | None = None
        self._renew_at: float | None = None
        self._renewing: asyncio.Future[None] | None = None
        self._paused_until = 0.0
        """The broker has asked for a pause until then (KIP-219). It would not answer anything before."""
        self.last_used = self._loop.time()

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
        security: Security = PLAINTEXT,
        send_buffer_bytes: int = OS_BUFFER,
        receive_buffer_bytes: int = OS_BUFFER,
        on_closed: Callable[[], None] | None = None,
    ) -> Connection:
        """Connect, negotiate versions and authenticate."""
        connection = cls(
            host,
            port,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            security=security,
            on_closed=on_closed,
        )
        try:
            async with asyncio.timeout(connect_timeout_ms / 1000):
                connection._transport = await open_transport(
                    host,
                    port,
                    lambda: Frames(connection, max_response_bytes),
                    tls=security.tls,
                    send_buffer_bytes=send_buffer_bytes,
                    receive_buffer_bytes=receive_buffer_bytes,
                )
        except TimeoutError:
            raise CannotConnect(
                f"{connection.address} did not accept a connection within {connect_timeout_ms / 1000:g} s: "
                "check the address and that no firewall drops the traffic"
            ) from None
        try:
            timeout_ms = min(request_timeout_ms, connect_timeout_ms)
            await connection._negotiate(timeout_ms)
            await connection._authenticate(timeout_ms)
        except BaseException:
            await connection.close()
            raise
        return connection

    @property
    def address(self) -> str:
        return address_of(self.host, self.port)

    @property
    def closed(self) -> bool:
        return self._failure is not None

    @property
    def failure(self) -> OttlaError | None:
        """Why it was closed; None while it is open."""
        return self._failure

    @property
    def in_flight(self) -> int:
        """The number of requests without a response."""
        return len(self._in_flight)

    def version_of(self, api_key: int, *, at_most: int | None = None) -> int:
        """The newest version of an API that both sides support."""
        _, _, first, last, _ = api(api_key)
        served = self.api_versions.get(api_key)
        if served is None:
            raise UnsupportedVersion(
                f"the broker at {self.address} does not support {api_title(api_key)}: upgrade the broker"
            )
        version = min(last, served[1], last if at_most is None else at_most)
        if version < max(first, served[0]):
            raise UnsupportedVersion(
                f"the broker at {self.address} supports {api_title(api_key)} in versions {served[0]} to {served[1]}, "
                f"this client in versions {first} to {last}: upgrade the older one"
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
        """Send a request in the newest common version (at most `at_most`) and wait for its response."""
        version = self.version_of(api_key, at_most=at_most)
        await self._until_writable()
        return await self._start(
            api_key, version, message, self.request_timeout_ms if timeout_ms is None else timeout_ms
        )

    async def send(self, api_key: int, message: codec.Message, *, at_most: int | None = None) -> None:
        """Send a request that has no response: Produce with acks=0."""
        version = self.version_of(api_key, at_most=at_most)
        await self._until_writable()
        frame = self._encode(api_key, version, message)[1]
        # The caller cannot know when it is sent and may change its records now, so copy them.
        self._write([b"".join(_parts(frame))])

    @property
    def writable(self) -> bool:
        """Whether `start` may be called now."""
        now = self._loop.time()
        due = self._renew_at is not None and now >= self._renew_at
        waits = due or now < self._paused_until
        return self._failure is None and self._renewing is None and not waits and self._writable.is_set()

    async def until_writable(self) -> None:
        """Wait until the connection is `writable`; raise the reason if it was closed."""
        await self._until_writable()

    def start(
        self, api_key: int, message: codec.Message, *, at_most: int | None = None
    ) -> asyncio.Future[codec.Struct]:
        """Write a request now and return the future of its response. Call it only when `writable`."""
        return self._start(api_key, self.version_of(api_key, at_most=at_most), message, self.request_timeout_ms)

    def abort(self) -> None:
        """Close at once. Requests without a response fail."""
        self._fail(Disconnected(f"the connection to {self.address} was closed"))

    async def close(self) -> None:
        """Close after everything written was sent: this matters for requests without a response."""
        transport = self._transport
        if transport is not None and self._failure is None and not self._is_awaited_over_tls():
            transport.close()
            await asyncio.wait([self._lost], timeout=CLOSE_TIMEOUT_MS / 1000)
        self._fail(Disconnected(f"the connection to {self.address} was closed"))
        if transport is not None:
            await self._lost

    def _is_awaited_over_tls(self) -> bool:
        """Whether the broker is busy with a request, such as a long poll: it answers the end of TLS only after it."""
        assert self._transport is not None
        return bool(self._in_flight) and self._transport.get_extra_info("ssl_object") is not None

    # Open the connection.

    async def _negotiate(self, timeout_ms: Millis) -> None:
        message = {"client_software_name": "ottla", "client_software_version": __version__}
        version = api(ApiKey.API_VERSIONS).last
        try:
            answer = await self._start(ApiKey.API_VERSIONS, version, message, timeout_ms)
            if answer.error_code == _UNSUPPORTED_VERSION:
                version = _version_to_fall_back_to(answer, version)
                answer = await self._start(ApiKey.API_VERSIONS, version, message, timeout_ms)
        except (Disconnected, RequestTimedOut) as error:
            # It may be a broker that is just starting or stopping: a caller that knows it is one may retry.
            raise NoAnswer(why_no_answer(self.address, error, self.security.protocol)) from None
        if answer.error_code:
            raise NotKafka(f"the broker at {self.address} rejected ApiVersions with error code {answer.error_code}")
        self.api_versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        self.features = {feature.name: feature.max_version_level for feature in answer.finalized_features or ()}

    async def _authenticate(self, timeout_ms: Millis) -> None:
        if self.security.sasl is None:
            return

        async def ask(api_key: int, message: codec.Message) -> codec.Struct:
            return await self._start(api_key, self.version_of(api_key), message, timeout_ms)

        lifetime_ms = await authenticate(self.address, self.security.sasl, ask)
        self._renew_at = None
        if lifetime_ms > 0:
            self._renew_at = self._loop.time() + random.uniform(*RENEW_AFTER) * lifetime_ms / 1000

    async def _renew(self) -> None:
        """Authenticate again before the session expires (KIP-368); no other request is sent meanwhile."""
        self._renewing = self._loop.create_future()
        self._renew_at = None
        try:
            await self._authenticate(self.request_timeout_ms)
        except IllegalSaslState:
            # Brokers refuse to renew a session in its first second. A new connection can log in.
            failure = Disconnected(f"the broker at {self.address} did not renew the session")
            self._fail(failure)
            raise failure from None
        except BaseException as error:
            # An unfinished authentication cannot continue, and no other request is allowed.
            why = error if isinstance(error, AuthenticationError) else None
            self._fail(why or Disconnected(f"the session at {self.address} could not be renewed: {error}"))
            raise
        finally:
            renewing, self._renewing = self._renewing, None
            renewing.set_result(None)

    # Write.

    async def _until_writable(self) -> None:
        while self._failure is None:
            if self._renewing is not None:
                await asyncio.wait([self._renewing])
            elif self._renew_at is not None and self._loop.time() >= self._renew_at:
                await self._renew()
            elif not self._writable.is_set():
                await self._writable.wait()
            elif (pause := self._paused_until - self._loop.time()) > 0:
                await asyncio.wait([self._lost], timeout=pause)
            else:
                return
        raise self._failure

    def _start(
        self, api_key: int, version: int, message: codec.Message, timeout_ms: Millis
    ) -> asyncio.Future[codec.Struct]:
        """Write a request and return the future of its response."""
        correlation_id, frame = self._encode(api_key, version, message)
        self._write(_parts(frame))
        answer: asyncio.Future[codec.Struct] = self._loop.create_future()
        expiry = self._loop.call_later(timeout_ms / 1000, self._expire, correlation_id, timeout_ms)
        self._in_flight[correlation_id] = _InFlight(api_key, version, answer, expiry)
        return answer

    def _encode(self, api_key: int, version: int, message: codec.Message) -> tuple[int, codec.Buffer]:
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        return correlation_id, codec.encode_request(api_key, version, correlation_id, self.client_id, message)

    def _write(self, parts: list[Any]) -> None:
        if self._failure is not None or self._transport is None:
            raise self._failure or Disconnected()
        self.last_used = self._loop.time()
        if len(parts) == 1:
            self._transport.write(parts[0])
        else:
            self._transport.writelines(parts)

    # Called by `Frames`.

    def frame_received(self, frame: Frame) -> None:
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        waiting = self._in_flight.pop(correlation_id, None)
        if waiting is None:
            self._fail(NotKafka(f"{self.address} responded to a request that was never sent: it is not a Kafka broker"))
            return
        self.last_used = self._loop.time()
        self._answers += 1
        waiting.expiry.cancel()
        if waiting.answer.done():
            return
        try:
            answer = _decode(waiting, frame)
            if (pause := getattr(answer, "throttle_time", 0)) > 0:
                self._paused_until = max(self._paused_until, self.last_used + pause / 1000)
            waiting.answer.set_result(answer)
        except codec.DecodeError as error:
            failure = NotKafka(f"{self.address} sent an invalid response: {error}")
            waiting.answer.set_exception(failure)
            self._fail(failure)

    def bad_frame(self, start: bytes) -> None:
        self._fail(NotKafka(who_speaks(self.address, start)))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(self._why_lost(error))
        if not self._lost.done():
            self._lost.set_result(None)

    def _why_lost(self, error: Exception | None) -> OttlaError:
        if isinstance(error, ssl.SSLError):
            # With TLS 1.3 a missing client certificate is reported only after the handshake.
            return tls_failure(self.address, self.host, error)
        if self.api_versions and self._answers <= 1 and self._in_flight and self.security.sasl is None:
            return ClosedAtOnce(why_closed_at_once(self.address))
        reason = f": {error}" if error is not None else ""
        return Disconnected(f"the broker at {self.address} closed the connection{reason}")

    def _expire(self, correlation_id: int, timeout_ms: Millis) -> None:
        waiting = self._in_flight.pop(correlation_id)
        name = api_title(waiting.api_key)
        message = f"the broker at {self.address} did not respond to {name} within {timeout_ms / 1000:g} s"
        if not waiting.answer.done():
            waiting.answer.set_exception(RequestTimedOut(message))
        self._fail(Disconnected(message))

    def _fail(self, failure: OttlaError) -> None:
        """Close the connection once; all waiting requests fail with the first reason."""
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
        if self._on_closed is not None:
            self._on_closed()


def _parts(frame: codec.Buffer) -> list[Any]:
    """The request and its records, in wire order."""
    if not frame.splices:
        return [frame]
    parts: list[Any] = []
    view, start = memoryview(frame), 0
    for position, records in frame.splices:
        parts += (view[start:position], records.data)
        start = position
    if start < len(frame):
        parts.append(view[start:])
    return parts


def _decode(waiting: _InFlight, frame: Frame) -> codec.Struct:
    """A broker that does not know our version of ApiVersions responds in version 0, with an error code."""
    version = waiting.version
    if waiting.api_key == ApiKey.FETCH:
        # Slices of bytes are copies, slices of a view are not.
        frame = memoryview(frame)
    elif (
        waiting.api_key == ApiKey.API_VERSIONS
        and int.from_bytes(frame[4:6], "big", signed=True) == _UNSUPPORTED_VERSION
    ):
        version = 0
    return codec.decode_response(waiting.api_key, version, frame)


def _version_to_fall_back_to(answer: codec.Struct, tried: int) -> int:
    served = [api.max_version for api in answer.api_keys if api.api_key == ApiKey.API_VERSIONS]
    return min(served[0], tried - 1) if served else 0
