"""Registrations of brokers."""

from __future__ import annotations

import socket
from contextlib import closing

from ottla.metadata.values import Endpoint, Registration


def registration(broker_id: int = 1, port: int = 9092, previous: int = -1) -> Registration:
    return Registration(broker_id, -1, previous, (Endpoint("PLAINTEXT", "127.0.0.1", port),), "a")


def unused_port() -> int:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
