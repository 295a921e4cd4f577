"""The errors of client connections, with messages that say what to change."""

from __future__ import annotations

import errno
from collections.abc import Callable

from ottla.errors import AuthenticationError, NetworkException, OttlaError
from ottla.protocol.apis import api


class CannotConnect(NetworkException):
    """No connection could be made, or the broker did not respond on it."""


class Disconnected(NetworkException):
    """The connection was lost before the response arrived."""


class ClosedAtOnce(Disconnected):
    """The broker closed the connection at the first request: its listener may require SASL."""


class NoAnswer(CannotConnect):
    """The connection was accepted and closed: the listener may use another security.protocol."""


class NotKafka(OttlaError):
    """The server does not speak Kafka's protocol, or not with the configured security.protocol."""


class TlsFailed(AuthenticationError):
    """The TLS handshake failed: a certificate was rejected, or only one side uses TLS."""


def api_title(api_key: int) -> str:
    """Kafka's name of an API.

    >>> api_title(2)
    'ListOffsets'
    """
    return "".join(word.capitalize() for word in api(api_key).name.split("_"))


def why_not_connected(address: str, problem: OSError | None) -> str:
    if isinstance(problem, ConnectionRefusedError):
        return f"nothing listens at {address}: check the address and that the broker is running"
    code = problem.errno if problem is not None else None
    if code in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return f"{address} cannot be reached from this machine: check the address and the network"
    return f"cannot connect to {address}: {problem or 'it has no address'}"


def why_no_answer(address: str, error: OttlaError, protocol: str) -> str:
    if protocol.endswith("SSL"):
        also = ", and set ssl.certfile if it requires a client certificate"
    else:
        also = f"; if it requires TLS, set security.protocol={protocol.replace('PLAINTEXT', 'SSL')}"
        also += " or SASL_SSL" if protocol == "PLAINTEXT" else ""
    return (
        f"{address} accepted the connection but did not respond like a Kafka broker ({error}): "
        f"check that this is the port of a {protocol} listener (security.protocol={protocol}){also}"
    )


def why_closed_at_once(address: str) -> str:
    """A listener that requires SASL responds to ApiVersions and closes the connection at any other request."""
    return (
        f"the broker at {address} closed the connection at the first request: if that listener requires SASL, set "
        "security.protocol=SASL_PLAINTEXT or SASL_SSL, sasl.mechanism, sasl.username and sasl.password"
    )


_SPEAKERS: tuple[tuple[Callable[[bytes], bool], str], ...] = (
    (
        lambda start: start.startswith(b"HTTP/"),
        "speaks HTTP: use the port of the Kafka listener, not of a web page",
    ),
    (lambda start: start.startswith(b"SSH-"), "speaks SSH: use the port of the Kafka listener"),
    (
        lambda start: 0x14 <= start[0] <= 0x17 and start[1] == 3,
        "speaks TLS: set security.protocol=SSL (or SASL_SSL), or use the port of a PLAINTEXT listener",
    ),
)


def why_no_handshake(address: str, error: OSError) -> str:
    """A broker that stops closes connections too, so this may pass."""
    reason = str(error).strip() or "it closed the connection"
    return (
        f"{address} does not speak TLS, or was stopped ({reason}): use the port of an SSL listener, "
        "or set security.protocol=PLAINTEXT"
    )


def who_speaks(address: str, start: bytes) -> str:
    """Explain a response that is no frame by its first bytes."""
    for recognises, hint in _SPEAKERS:
        if recognises(start):
            return f"{address} {hint}"
    size = int.from_bytes(start[:4], "big")
    return (
        f"{address} did not send a Kafka response (a size of {size:,} bytes): "
        "check that this is the port of a Kafka broker"
    )
