"""From a host name to a transport: look up the name, connect a socket, do the TLS handshake.

Each step reports its own errors.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any

from ottla.net.client.errors import CannotConnect, NoAnswer, why_no_handshake, why_not_connected
from ottla.net.client.tls import tls_failure

OS_BUFFER = -1
#: Bytes in the transport's buffer before writers wait: some produce requests, so that the socket always has data.
WRITE_AHEAD_BYTES = 4 * 1024 * 1024

Protocol = Callable[[], asyncio.BaseProtocol]


def address_of(host: str, port: int) -> str:
    """
    >>> address_of("::1", 9092), address_of("kafka", 9092)
    ('[::1]:9092', 'kafka:9092')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def open_transport(
    host: str,
    port: int,
    protocol: Protocol,
    *,
    tls: ssl.SSLContext | None,
    send_buffer_bytes: int = OS_BUFFER,
    receive_buffer_bytes: int = OS_BUFFER,
) -> asyncio.Transport:
    """A transport over the first address of the host that accepts a connection."""
    problem: OSError | None = None
    for family, kind, number, _, address in await _resolve(host, port):
        sock = socket.socket(family, kind, number)
        try:
            _prepare(sock, send_buffer_bytes, receive_buffer_bytes)
            await asyncio.get_running_loop().sock_connect(sock, address)
        except OSError as error:
            sock.close()
            problem = error
        except BaseException:
            sock.close()
            raise
        else:
            transport = await _layered(sock, host, port, protocol, tls)
            transport.set_write_buffer_limits(high=WRITE_AHEAD_BYTES)
            return transport
    raise CannotConnect(why_not_connected(address_of(host, port), problem))


async def _resolve(host: str, port: int) -> list[tuple[Any, ...]]:
    try:
        # An IP address needs no name service and no thread. As bytes it needs no IDNA codec either.
        number = host.encode("ascii")
        return list(socket.getaddrinfo(number, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST))
    except (socket.gaierror, UnicodeError):
        pass
    try:
        return list(await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except (socket.gaierror, UnicodeError):
        raise CannotConnect(f"cannot resolve the host name {host!r}: check its spelling") from None


def _prepare(sock: socket.socket, send_buffer: int, receive_buffer: int) -> None:
    """Set the options that must be set before connecting."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if send_buffer >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    if receive_buffer >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)


async def _layered(
    sock: socket.socket, host: str, port: int, protocol: Protocol, tls: ssl.SSLContext | None
) -> asyncio.Transport:
    """The transport over a connected socket, after the TLS handshake."""
    try:
        transport, _ = await asyncio.get_running_loop().create_connection(
            protocol, sock=sock, ssl=tls, server_hostname=host if tls is not None else None
        )
    except OSError as error:
        sock.close()
        address = address_of(host, port)
        if tls is None:
            raise CannotConnect(f"cannot connect to {address}: {error}") from None
        if not isinstance(error, ssl.SSLError) or isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            raise NoAnswer(why_no_handshake(address, error)) from None
        raise tls_failure(address, host, error) from None
    return transport
