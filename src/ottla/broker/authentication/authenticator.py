"""Speaks SASL with one client until it has proven who it is, and again before its session ends (KIP-368).

    ApiVersions (may be left out) ──> SaslHandshake ──> SaslAuthenticate, once or twice ──> other requests
                                            └── v0 ──> the messages of the mechanism as frames of their own

Everything else closes the connection. A client that is refused gets the answer after a while, and is disconnected.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING

from ottla.broker.authentication.conversations import Conversation, Login, Step
from ottla.errors import SaslAuthenticationFailed, UnsupportedSaslMechanism
from ottla.net.client.errors import api_title
from ottla.net.server.connection import SHORTEST, Answer, CloseConnection, Connection, Later
from ottla.protocol import codec
from ottla.protocol.apis import ApiKey, api
from ottla.protocol.codec import Buffer, Message, RequestHeader
from ottla.security.authorizer import shown
from ottla.security.principals import Principal
from ottla.types import Millis

if TYPE_CHECKING:
    from ottla.broker.authentication.listener import SaslListener

#: As in Kafka: a client that authenticates more often than this is refused.
LEAST_SECONDS_BETWEEN_LOGINS = 1.0
KNOWN = frozenset(map(int, ApiKey))
Handled = Answer | Later | Awaitable[Answer]


class Authenticator:
    """The handler of a connection until its client is known. It then hands the connection to the dispatcher."""

    __slots__ = (
        "_asked_versions", "_began_at", "_conversation", "_ends_at", "_has_headers", "_is_logged", "_listener",
        "_mechanism", "_principal", "_wrong_mechanism",
    )  # fmt: skip

    def __init__(self, listener: SaslListener, connection: Connection) -> None:
        self._listener = listener
        self._asked_versions = False
        self._conversation: Conversation | None = None
        self._has_headers = False
        self._mechanism = ""
        self._is_logged = False
        """Whether the log has the reason why the client will be refused."""
        self._wrong_mechanism = ""
        """What the client has asked for instead of its mechanism, when it authenticates again."""
        self._principal: Principal | None = None
        """Who the client is. It stays the same when the client authenticates again."""
        self._began_at = 0.0
        self._ends_at: float | None = None
        connection.known_by = asyncio.get_running_loop().time() + listener.timeout_seconds

    def handle(self, connection: Connection, frame: memoryview) -> Handled:
        """Handle a frame of a client that is not known."""
        if self._conversation is None:
            return self._before_handshake(connection, frame)
        if self._has_headers:
            return self._authenticate(connection, frame)
        return self._hear(connection, bytes(frame), None)

    # ── ApiVersions and SaslHandshake ─────────────────────────────────────────────────────────────────────────────

    def _before_handshake(self, connection: Connection, frame: memoryview) -> Handled:
        header = _header(frame)
        if header.api_key == ApiKey.SASL_HANDSHAKE:
            return self._handshake(connection, frame, header)
        if header.api_key == ApiKey.API_VERSIONS and not self._asked_versions:
            self._asked_versions = header.api_version <= api(header.api_key).last
            return self._listener.serve(connection, frame)
        raise CloseConnection(
            f"{_title(header)} before authentication: the client may have another "
            f"security.protocol than this listener, which has {self._listener.protocol}"
        )

    def _handshake(self, connection: Connection, frame: memoryview, header: RequestHeader) -> Handled:
        request = _body(frame, header)
        offered = list(self._listener.mechanisms)
        begin = self._listener.mechanisms.get(request.mechanism)
        self._began_at = asyncio.get_running_loop().time()
        if begin is None:
            answer = _answer(header, {"error_code": UnsupportedSaslMechanism.code, "mechanisms": offered})
            return self._refused(answer, f"the SASL mechanism {request.mechanism[:50]!r} is not enabled")
        if self._principal is not None and request.mechanism != self._mechanism:
            self._wrong_mechanism = request.mechanism
        self._mechanism = self._mechanism or request.mechanism
        self._has_headers = header.api_version >= 1
        self._conversation = begin()
        if not self._has_headers:
            connection.min_request_size = 0
        return _answer(header, {"mechanisms": offered})

    # ── the mechanism ─────────────────────────────────────────────────────────────────────────────────────────────

    def _authenticate(self, connection: Connection, frame: memoryview) -> Handled:
        header = _header(frame)
        if header.api_key != ApiKey.SASL_AUTHENTICATE:
            raise CloseConnection(self._reason(f"{_title(header)} in the middle of it"))
        return self._hear(connection, bytes(_body(frame, header).auth_bytes), header)

    def _hear(self, connection: Connection, message: bytes, header: RequestHeader | None) -> Handled:
        assert self._conversation is not None
        self._began_at = asyncio.get_running_loop().time()
        try:
            if self._wrong_mechanism:
                raise SaslAuthenticationFailed(
                    f"SASL mechanism '{self._wrong_mechanism}' requested by client is not supported for "
                    f"re-authentication of mechanism '{self._mechanism}'"
                )
            if not iscoroutinefunction(self._conversation):
                step = self._conversation(message)
                assert isinstance(step, Step)
                return self._said(connection, step, header)
        except SaslAuthenticationFailed as error:
            return self._failed(header, error)
        return self._hear_later(connection, message, header)

    async def _hear_later(self, connection: Connection, message: bytes, header: RequestHeader | None) -> Answer:
        # The conversation is called here, because nothing of this runs if the connection is closed at once.
        assert self._conversation is not None
        try:
            step = self._conversation(message)
            return self._said(connection, step if isinstance(step, Step) else await step, header)
        except SaslAuthenticationFailed as error:
            return await self._failed(header, error)

    def _said(self, connection: Connection, step: Step, header: RequestHeader | None) -> Answer:
        if step.problem:
            # Some clients do not understand the answer, or are content with it. So this is logged now, and only now.
            connection.complain(self._reason(step.problem))
            self._is_logged = True
            self._listener.count(self._mechanism, success=False)
        lifetime: Millis = 0
        if step.login is not None:
            lifetime = self._authenticated(connection, step.login)
        if header is not None:
            return _answer(header, {"error_message": None, "auth_bytes": step.say, "session_lifetime": lifetime})
        answer = Buffer(len(step.say).to_bytes(4, "big"))
        answer += step.say
        return answer

    def _failed(self, header: RequestHeader | None, error: SaslAuthenticationFailed) -> Awaitable[Answer]:
        what = "authentication" if self._principal is None else "re-authentication"
        why = str(error)
        if self._mechanism.startswith("SCRAM"):
            # As in Kafka: nothing that tells whether there is such a user.
            why = (
                f"Authentication failed during {what} due to invalid credentials with SASL mechanism {self._mechanism}"
            )
        answer = None
        if header is not None:
            answer = _answer(
                header, {"error_code": SaslAuthenticationFailed.code, "error_message": why, "auth_bytes": b""}
            )
        return self._refused(answer, self._reason(str(error)))

    def _reason(self, problem: str) -> str:
        """Return the line for the log, empty if it is there."""
        what = "authentication" if self._principal is None else "re-authentication"
        problem = problem.removeprefix("Authentication failed: ")
        return "" if self._is_logged else f"{what} with {self._mechanism} failed: {problem}"

    async def _refused(self, answer: Buffer | None, why: str) -> Answer:
        """Answer and disconnect a fixed time after the request, so that the time of the answer tells nothing."""
        if not self._is_logged:
            self._listener.count(self._mechanism, success=False)
        ends_at = self._began_at + self._listener.delay_seconds
        await asyncio.sleep(max(0.0, ends_at - asyncio.get_running_loop().time()))
        raise CloseConnection(why, answer)

    # ── sessions ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _authenticated(self, connection: Connection, login: Login) -> Millis:
        """Let the client's requests through. Return for how long, 0 for as long as the connection lives."""
        principal = Principal("User", login.name)
        if self._principal not in (None, principal):
            raise SaslAuthenticationFailed(
                f"Cannot change principals during re-authentication from {shown(str(self._principal))}: "
                f"{shown(str(principal))}"
            )
        connection.known_by = math.inf
        self._principal = connection.channel.principal = principal
        self._conversation = None
        self._listener.count(self._mechanism, success=True)
        lifetime = self._listener.lifetime_ms(self._mechanism, login)
        if lifetime is None:
            connection.handler = self._listener.serve
        else:
            self._ends_at = asyncio.get_running_loop().time() + lifetime / 1000
            connection.handler = self._serve
        connection.max_request_size = self._listener.max_request_size
        connection.min_request_size = SHORTEST
        return lifetime or 0

    def _serve(self, connection: Connection, frame: memoryview) -> Handled:
        """Serve a client whose session has an end."""
        now = asyncio.get_running_loop().time()
        if frame[0] == 0 and frame[1] == ApiKey.SASL_HANDSHAKE and now - self._began_at >= LEAST_SECONDS_BETWEEN_LOGINS:
            connection.handler = self.handle
            return self._handshake(connection, frame, _header(frame))
        assert self._ends_at is not None
        if now >= self._ends_at:
            who = shown(str(self._principal))
            raise CloseConnection(f"the session of {who} has ended: the client did not authenticate again")
        return self._listener.serve(connection, frame)


def _header(frame: memoryview) -> RequestHeader:
    try:
        return codec.decode_request_header(frame)
    except codec.DecodeError as error:
        raise CloseConnection(str(error)) from error


def _body(frame: memoryview, header: RequestHeader) -> codec.Struct:
    known = api(header.api_key)
    if not known.first <= header.api_version <= known.last:
        raise CloseConnection(f"{known.name} v{header.api_version} is not served")
    try:
        return codec.decode_request_body(header.api_key, header.api_version, frame, header.body)
    except codec.DecodeError as error:
        raise CloseConnection(f"{known.name} v{header.api_version}: {error}") from error


def _title(header: RequestHeader) -> str:
    return api_title(header.api_key) if header.api_key in KNOWN else f"a request of the API {header.api_key}"


def _answer(header: RequestHeader, message: Message) -> Buffer:
    return codec.encode_response(header.api_key, header.api_version, header.correlation_id, message)
