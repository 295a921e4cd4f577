"""What can go wrong between a client and a broker, in sentences that say what to change.

Recognising who speaks at an address, and why nobody does, belongs here; what to do about it is decided above.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from ottla.errors import AuthenticationError, NetworkException, OttlaError
from ottla.protocol.apis import api


class CannotConnect(NetworkException):
    """No connection could be made, or nobody answered on it."""


class Disconnected(NetworkException):
    """The connection was lost before the answer came."""


class NotKafka(OttlaError):
    """Something listens there, but it does not speak Kafka's protocol, or not in the way that was configured."""


class TlsFailed(AuthenticationError):
    """The two sides could not agree on TLS: a certificate was not accepted, or only one of them speaks it."""


def api_title(api_key: int) -> str:
    """Kafka's own name of an API.

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
    certificate = ", and set ssl.certfile if it asks for a client's certificate" if protocol.endswith("SSL") else ""
    return (
        f"{address} accepted the connection but did not answer as a Kafka broker does ({error}): "
        f"check that this is the port of a {protocol} listener (security.protocol={protocol}){certificate}"
    )


def why_closed_at_once(address: str) -> str:
    """A listener that asks for SASL answers ApiVersions, and closes the connection at anything else."""
    return (
        f"the broker at {address} closed the connection at the first request: if that listener asks for SASL, set "
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


def who_speaks(address: str, start: bytes) -> str:
    """What the first bytes of an answer tell about who gave it."""
    for recognises, hint in _SPEAKERS:
        if recognises(start):
            return f"{address} {hint}"
    size = int.from_bytes(start[:4], "big")
    return (
        f"{address} sent something that is no Kafka response (a size of {size:,} bytes): "
        "check that this is the port of a Kafka broker"
    )
