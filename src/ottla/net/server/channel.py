"""The channel under a connection: how bytes get from the client and to it, and who the client is.

A connection knows frames and nothing of what protects them. TLS and SASL belong here, as channels with the same
methods as `PlainChannel`; ``Server(new_channel=…)`` chooses one for each listener.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from typing import Protocol

from ottla.protocol.codec import Buffer
from ottla.security.principals import ANONYMOUS, Principal

MSG_MORE = getattr(socket, "MSG_MORE", 0)
_HAS_SENDFILE = hasattr(os, "sendfile")


class Channel(Protocol):
    """What a connection needs from a channel. The methods do not block; they raise BlockingIOError instead."""

    fd: int
    is_plain: bool
    """Whether the socket's own bytes are the frames, so that the kernel may send files and many sockets at once."""
    principal: Principal
    receive_into: Callable[[memoryview], int]
    send: Callable[[Buffer | memoryview], int]

    @property
    def local_host(self) -> str:
        """The address of this computer that the client connected to."""

    def send_parts(self, parts: Sequence[Buffer | memoryview], *, more: bool) -> int:
        """Send several buffers with one call; ``more`` says that other bytes follow at once."""

    def send_file(self, fd: int, position: int, length: int) -> int:
        """Send a part of a file."""

    def close(self) -> None: ...


class PlainChannel:
    """A socket as it is."""

    __slots__ = ("_socket", "fd", "is_plain", "principal", "receive_into", "send")

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.fd = sock.fileno()
        self.is_plain = True
        self.principal = ANONYMOUS
        self.receive_into: Callable[[memoryview], int] = sock.recv_into
        self.send: Callable[[Buffer | memoryview], int] = sock.send

    @property
    def local_host(self) -> str:
        host: str = self._socket.getsockname()[0]
        return host

    def send_parts(self, parts: Sequence[Buffer | memoryview], *, more: bool) -> int:
        return self._socket.sendmsg(parts, (), MSG_MORE if more else 0)

    def send_file(self, fd: int, position: int, length: int) -> int:
        if _HAS_SENDFILE:
            return os.sendfile(self.fd, fd, position, length)
        return self._socket.send(os.pread(fd, min(length, 1 << 20), position))

    def close(self) -> None:
        self._socket.close()
