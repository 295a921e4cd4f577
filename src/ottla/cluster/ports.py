"""Ports for servers that are stopped and started again."""

from __future__ import annotations

import random
import socket

from ottla.errors import OttlaError

#: Below those that the operating system picks for outgoing connections, so that a stopped server keeps its port.
_PORTS = range(12_000, 32_000)
_TRIES = 200


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody uses.

    >>> 12_000 <= free_port() < 32_000
    True
    """
    for _ in range(_TRIES):
        port = random.choice(_PORTS)
        if why_not_free(port) is None:
            return port
    raise OttlaError(f"found no free port between {_PORTS.start} and {_PORTS.stop}")


def why_not_free(port: int) -> str | None:
    """Return why nobody can listen on a port of 127.0.0.1, or None."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return error.strerror
    return None
