"""The client's SASL: PLAIN, SCRAM and OAUTHBEARER, and the requests that carry them.

A conversation is a generator: it yields the bytes to send and receives the broker's. A new mechanism is a new function,
and its tests need no connection. `authenticate` carries it in SaslHandshake and SaslAuthenticate. Errors name the
setting to check, and contain no secrets.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import inspect
import json
import re
import secrets
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from ottla.config.client import ClientConfig
from ottla.errors import (
    ConfigError,
    IllegalSaslState,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
    UnsupportedVersion,
    error_name,
)
from ottla.net.client.errors import CannotConnect
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.security.jaas import Jaas
from ottla.security.scram import MIN_ITERATIONS, ScramMechanism
from ottla.types import Millis

Conversation = Generator[bytes, bytes, None]
Request = Callable[[int, Message], Awaitable[Struct]]

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")


# ── conversations ─────────────────────────────────────────────────────────────────────────────────────────────────


def plain(username: str, password: str) -> Conversation:
    """RFC 4616: user name and password in plain text.

    >>> next(plain("me", "secret"))
    b'\\x00me\\x00secret'
    """
    yield f"\0{username}\0{password}".encode()


def scram(hash_name: str, username: str, password: str, *, nonce: str) -> Conversation:
    """RFC 5802: both sides prove that they know the password without sending it."""
    name = username.replace("=", "=3D").replace(",", "=2C")
    bare = f"n={name},r={nonce}"
    server_first = yield f"n,,{bare}".encode()
    fields = _fields(server_first)
    salt, iterations = _challenge(fields, nonce)
    without_proof = f"c=biws,r={fields['r']}"
    message = ",".join((bare, server_first.decode(), without_proof)).encode()
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
    client_key = _hmac(hash_name, salted, b"Client Key")
    signature = _hmac(hash_name, hashlib.new(hash_name, client_key).digest(), message)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    server_final = yield f"{without_proof},p={base64.b64encode(proof).decode()}".encode()
    _check_server(server_final, _hmac(hash_name, _hmac(hash_name, salted, b"Server Key"), message))


def _hmac(hash_name: str, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, hash_name)


def _fields(message: bytes) -> dict[str, str]:
    try:
        parts = message.decode().split(",")
    except UnicodeDecodeError:
        raise SaslAuthenticationFailed("cannot read the broker's SCRAM message") from None
    return {part[:1]: part[2:] for part in parts if part[1:2] == "="}


def _challenge(fields: dict[str, str], nonce: str) -> tuple[bytes, int]:
    if "e" in fields:
        raise SaslAuthenticationFailed(f"the broker rejected it: {fields['e']}")
    try:
        salt, iterations = base64.b64decode(fields["s"], validate=True), int(fields["i"])
        server_nonce = fields["r"]
    except (KeyError, ValueError, binascii.Error):
        raise SaslAuthenticationFailed("cannot read the broker's SCRAM challenge") from None
    if not server_nonce.startswith(nonce) or server_nonce == nonce:
        raise SaslAuthenticationFailed("the broker's SCRAM challenge is for another request")
    if not MIN_ITERATIONS <= iterations <= 10_000_000:
        raise SaslAuthenticationFailed(f"the broker requires {iterations} SCRAM iterations, which is not safe")
    return salt, iterations


def _check_server(server_final: bytes, expected: bytes) -> None:
    fields = _fields(server_final)
    if "e" in fields:
        raise SaslAuthenticationFailed(f"the broker rejected it: {fields['e']}")
    try:
        given = base64.b64decode(fields.get("v", ""), validate=True)
    except binascii.Error:
        given = b""
    if not hmac.compare_digest(given, expected):
        raise SaslAuthenticationFailed("the broker could not prove that it knows the password: it may be an impostor")


def oauthbearer(token: str, extensions: dict[str, str] | None = None) -> Conversation:
    """RFC 7628: a token from an identity provider. A broker that rejects it sends the reason."""
    if not _TOKEN.fullmatch(token):
        raise SaslAuthenticationFailed("sasl.oauth.token.provider did not return a bearer token")
    more = "".join(f"\x01{name}={value}" for name, value in (extensions or {}).items())
    answer = yield f"n,,\x01auth=Bearer {token}{more}\x01\x01".encode()
    if answer:
        # The broker waits for this before it ends the conversation with an error.
        yield b"\x01"
        raise SaslAuthenticationFailed(f"the broker rejected the token: {_oauth_problem(answer)}")


def _oauth_problem(answer: bytes) -> str:
    try:
        return str(json.loads(answer)["status"])
    except (ValueError, KeyError, TypeError):
        return answer[:200].decode("utf-8", "replace")


# ── credentials ───────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Sasl:
    """A client's SASL mechanism and its credentials."""

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    token_provider: Any = field(default=None, repr=False)

    @classmethod
    def of(cls, config: ClientConfig) -> Sasl | None:
        """The SASL of a configuration; None if its security.protocol has none."""
        if not config.security_protocol.startswith("SASL"):
            return None
        if config.sasl_mechanism == "OAUTHBEARER":
            if config.sasl_oauth_token_provider is None:
                raise ConfigError("sasl.oauth.token.provider is missing: sasl.mechanism=OAUTHBEARER requires it.")
            return cls("OAUTHBEARER", token_provider=config.sasl_oauth_token_provider)
        jaas = _jaas(config.sasl_jaas_config)
        username = config.sasl_username if config.sasl_username is not None else jaas.username
        password = config.sasl_password if config.sasl_password is not None else jaas.password
        return cls(config.sasl_mechanism, username or "", password or "")

    async def conversation(self) -> Conversation:
        if self.mechanism == "PLAIN":
            return plain(self.username, self.password)
        if self.mechanism == "OAUTHBEARER":
            return oauthbearer(*await self._token())
        nonce = secrets.token_urlsafe(24)
        mechanism = ScramMechanism.named(self.mechanism)
        return scram(mechanism.hash_name, self.username, self.password, nonce=nonce)

    async def _token(self) -> tuple[str, dict[str, str]]:
        """The token of a function, or of an object with `token` (and `extensions`) as in other clients."""
        provider = self.token_provider
        extensions: dict[str, str] | None = getattr(provider, "extensions", dict)()
        try:
            token = await _called(getattr(provider, "token", provider))
        except Exception as error:
            # The identity provider may come back, so this may be retried. The text may have secrets.
            raise CannotConnect(f"sasl.oauth.token.provider failed ({type(error).__name__})") from error
        if not isinstance(token, str):
            raise SaslAuthenticationFailed(
                f"sasl.oauth.token.provider must return the token as str, not {type(token).__name__}"
            )
        return token, dict(extensions or {})

    @property
    def settings(self) -> str:
        """The settings to check when the broker rejects this."""
        if self.mechanism == "OAUTHBEARER":
            return "check sasl.oauth.token.provider"
        return "check sasl.username, sasl.password and sasl.mechanism"

    def __str__(self) -> str:
        return self.mechanism if not self.username else f"user {self.username!r} with {self.mechanism}"


async def _called(function: Callable[[], Any]) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function()
    # It may call a server, which must not block the event loop.
    token = await asyncio.get_running_loop().run_in_executor(None, function)
    return await token if inspect.isawaitable(token) else token


def _jaas(text: str | None) -> Jaas:
    if text is None:
        return Jaas()
    try:
        return Jaas.parse(text)
    except ValueError as problem:
        raise ConfigError(f"Invalid value '[hidden]' for configuration sasl.jaas.config: {problem}.") from None


# ── on a connection ───────────────────────────────────────────────────────────────────────────────────────────────


async def authenticate(address: str, sasl: Sasl, request: Request) -> Millis:
    """Authenticate, and return the lifetime of the session (KIP-368); 0 if it does not expire."""
    await _handshake(address, sasl, request)
    conversation = await sasl.conversation()
    try:
        message = next(conversation)
        while True:
            answer = await request(ApiKey.SASL_AUTHENTICATE, {"auth_bytes": message})
            if answer.error_code:
                raise SaslAuthenticationFailed(_reason(answer))
            message = conversation.send(bytes(answer.auth_bytes))
    except StopIteration:
        return int(answer.session_lifetime)
    except SaslAuthenticationFailed as error:
        raise SaslAuthenticationFailed(f"the broker at {address} rejected {sasl}: {error}; {sasl.settings}") from None


def _reason(answer: Struct) -> str:
    return (answer.error_message or error_name(answer.error_code)).rstrip(".")


async def _handshake(address: str, sasl: Sasl, request: Request) -> None:
    try:
        answer = await request(ApiKey.SASL_HANDSHAKE, {"mechanism": sasl.mechanism})
    except UnsupportedVersion:
        raise IllegalSaslState(_no_sasl(address)) from None
    if answer.error_code == UnsupportedSaslMechanism.code:
        offered = ", ".join(answer.mechanisms) or "none"
        raise UnsupportedSaslMechanism(
            f"the broker at {address} does not support {sasl.mechanism}: set sasl.mechanism to one of: {offered}"
        )
    if answer.error_code:
        raise IllegalSaslState(_no_sasl(address))


def _no_sasl(address: str) -> str:
    return (
        f"the listener at {address} has no SASL: set security.protocol to PLAINTEXT or SSL, "
        "or use the port of a SASL listener"
    )
