"""On whose behalf a broker forwards a request: the principal and the address in an Envelope, in Kafka's form."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, cast

from ottla import errors
from ottla.protocol import codec
from ottla.protocol.codec import Struct
from ottla.security.principals import ANONYMOUS, Principal

if TYPE_CHECKING:
    from ottla.net.server.connection import Connection

#: Kafka's DefaultPrincipalData has one version. A bool and the number of tags follow the two strings.
_VERSION, _END = b"\0\0", b"\0\0"


def encode_principal(principal: Principal) -> bytes:
    """Return a principal as Kafka's DefaultPrincipalData.

    >>> encode_principal(Principal("User", "etl"))
    b'\\x00\\x00\\x05User\\x04etl\\x00\\x00'
    """
    return _VERSION + _compact(principal.type) + _compact(principal.name) + _END


def decode_principal(data: bytes | memoryview | None) -> Principal:
    """Read Kafka's DefaultPrincipalData; raise PrincipalDeserializationFailure. Nobody in particular is ANONYMOUS."""
    if data is None:
        return ANONYMOUS
    data = bytes(data)
    try:
        kind, position = _string(data, 2)
        name, position = _string(data, position)
        if data[:2] != _VERSION or len(data) < position + 1 or not kind or not name:
            raise ValueError
    except (ValueError, IndexError) as error:
        raise errors.PrincipalDeserializationFailure("The principal in an envelope cannot be read.") from error
    return Principal(kind, name)


def encode_host(host: str) -> bytes:
    """Return the bytes of an address.

    >>> encode_host("10.0.0.1")
    b'\\n\\x00\\x00\\x01'
    """
    return ip_address(host.partition("%")[0]).packed


def decode_host(data: bytes | memoryview) -> str:
    """Read the bytes of an address, or raise InvalidRequest."""
    data = bytes(data)
    if len(data) not in (4, 16):
        raise errors.InvalidRequest(f"A client's address in an envelope has {len(data)} bytes, not 4 or 16.")
    return socket.inet_ntop(socket.AF_INET if len(data) == 4 else socket.AF_INET6, data)


class _Channel:
    """The channel of the broker that forwards, with another principal."""

    def __init__(self, channel: Any, principal: Principal) -> None:
        self._channel = channel
        self.principal = principal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)


class _Client:
    """The connection of the broker that forwards, with the address and the principal of the client."""

    def __init__(self, connection: Connection, principal: Principal, host: str) -> None:
        self._connection = connection
        self.channel = _Channel(connection.channel, principal)
        self.client_host = host

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def forwarded_client(connection: Connection, envelope: Struct) -> Connection:
    """Return the client for which a broker has sent an envelope; raise an error for a wrong envelope."""
    # Imported here because the table includes the handler that imports this module.
    from ottla.broker.handlers import HANDLERS

    principal = decode_principal(envelope.request_principal)
    host = decode_host(envelope.client_host_address)
    try:
        api_key = codec.decode_request_header(envelope.request_data).api_key
    except codec.DecodeError as error:
        raise errors.UnsupportedVersion(f"The request in an envelope cannot be read: {error}") from error
    handler = HANDLERS.get(api_key)
    if handler is None or not handler.to_controller:
        raise errors.InvalidRequest(f"The API {api_key} cannot be forwarded.")
    return cast("Connection", _Client(connection, principal, host))


def _compact(text: str) -> bytes:
    """Return a string after its length plus one, as a varint."""
    data = text.encode()
    length, prefix = len(data) + 1, bytearray()
    while length > 0x7F:
        prefix.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes((*prefix, length)) + data


def _string(data: bytes, position: int) -> tuple[str, int]:
    length = shift = 0
    while True:
        byte = data[position]
        position += 1
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
        if shift > 28:
            raise ValueError
    end = position + length - 1
    if length < 1 or end > len(data):
        raise ValueError
    return data[position:end].decode(), end
