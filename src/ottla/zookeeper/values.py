"""Operations, answers and errors of ZooKeeper."""

from __future__ import annotations

import enum
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from ottla.errors import OttlaError

ANY_VERSION = -1


@dataclass(frozen=True, slots=True)
class Access:
    """How to connect to ZooKeeper, and as whom."""

    tls: Callable[[], ssl.SSLContext] | None = None
    """Returns the context for a new connection."""
    digest: str | None = field(default=None, repr=False)
    """user:password for the `digest` scheme."""
    sasl: tuple[str, str] | None = field(default=None, repr=False)
    """User and password for SASL with DIGEST-MD5."""
    keeps_nodes_private: bool = False
    """Whether only those with the same login may read and change new nodes."""


ANYBODY = Access()
"""Without TLS and login."""


class SessionState(enum.Enum):
    """What is known about the session."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """The connection is broken. The session, its ephemeral nodes included, may still be alive."""
    LOST = "lost"
    """The session has ended. Its ephemeral nodes are gone. A new session follows."""


class Stat(NamedTuple):
    """What ZooKeeper knows about a node."""

    czxid: int
    """The transaction that created the node."""
    mzxid: int
    """The transaction that set its data last."""
    version: int
    """How often its data was set."""
    owner: int
    """The session of an ephemeral node, else 0."""


class Node(NamedTuple):
    data: bytes
    stat: Stat


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    data: bytes = b""
    is_ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Nothing is written unless the node has this version."""

    path: str
    version: int


Operation: TypeAlias = Create | Set | Delete | Check


class ZooKeeperError(OttlaError):
    """ZooKeeper rejected an operation."""


class ConnectionLost(ZooKeeperError):
    """The answer was lost with the connection or the session. The operation may have happened or may still happen."""


class SessionClosed(ZooKeeperError):
    """This side has closed the session."""


class NoNode(ZooKeeperError):
    """The node does not exist."""


class NodeExists(ZooKeeperError):
    """The node exists already."""


class BadVersion(ZooKeeperError):
    """The node has another version."""


class Rejected(ZooKeeperError):
    """Nothing was written, because of the operation with this index."""

    def __init__(self, index: int, reason: ZooKeeperError) -> None:
        super().__init__(f"operation {index} failed: {reason}")
        self.index = index
        self.reason = reason
