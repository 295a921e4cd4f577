"""The channel under a connection: how bytes get from the client and to it, and who the client is.

A connection knows frames and nothing of what protects them. tls.py has a channel with the same methods as
`PlainChannel`; ``Server(new_channel=…)`` chooses one for each listener.
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
    is_established: bool
    """Whether requests can be received: the handshake is over."""
    principal: Principal

    @property
    def local_host(self) -> str:
        """The address of this computer that the client connected to."""

    @property
    def has_more(self) -> bool:
        """Whether there are received bytes that no event of the socket will tell of."""

    def shake_hands(self) -> None:
        """Go on with the handshake, if it is not over. Raise OSError if it fails."""

    def receive_into(self, view: memoryview, /) -> int:
        """Receive bytes. 0 means that the client has closed."""

    def send(self, data: Buffer | memoryview, /) -> int:
        """Send as much as possible, and return how many bytes of it."""

    def send_parts(self, parts: Sequence[Buffer | memoryview], *, more: bool) -> int:
        """Send several buffers with one call; ``more`` says that other bytes follow at once."""

    def send_file(self, fd: int, position: int, length: int) -> int:
        """Send a part of a file."""

    def flush(self) -> None:
        """Send what counts as sent but is still here."""

    def close(self) -> None: ...


class PlainChannel:
    """A socket as it is."""

    __slots__ = ("_socket", "fd", "has_more", "is_established", "is_plain", "principal", "receive_into", "send")

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.fd = sock.fileno()
        self.is_plain = self.is_established = True
        self.has_more = False
        self.principal = ANONYMOUS
        self.receive_into: Callable[[memoryview], int] = sock.recv_into
        self.send: Callable[[Buffer | memoryview], int] = sock.send

    @property
    def local_host(self) -> str:
        host: str = self._socket.getsockname()[0]
        return host

    def shake_hands(self) -> None:
        """Do nothing: there is no handshake."""

    def flush(self) -> None:
        """Do nothing: what is sent is gone."""

    def send_parts(self, parts: Sequence[Buffer | memoryview], *, more: bool) -> int:
        return self._socket.sendmsg(parts, (), MSG_MORE if more else 0)

    def send_file(self, fd: int, position: int, length: int) -> int:
        if _HAS_SENDFILE:
            return os.sendfile(self.fd, fd, position, length)
        return self._socket.send(os.pread(fd, min(length, 1 << 20), position))

    def close(self) -> None:
        self._socket.close()
