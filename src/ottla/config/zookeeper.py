"""Parse ``zookeeper.connect``: ``host:port,host:port/chroot``."""

from __future__ import annotations

import re
from typing import NamedTuple

from ottla.config.listeners import parse_address

_DEFAULT_PORT = 2181
_NAME = re.compile(r"[A-Za-z0-9_.~-]+")


class ConnectString(NamedTuple):
    """The addresses of ZooKeeper, and the path under which the cluster keeps its nodes.

    >>> ConnectString.parse("zk1:2181,zk2/prod/ottla")
    ConnectString(addresses=(('zk1', 2181), ('zk2', 2181)), chroot='/prod/ottla')
    >>> str(ConnectString.parse("zk1,[::1]:2182/"))
    'zk1:2181,[::1]:2182'
    """

    addresses: tuple[tuple[str, int], ...]
    chroot: str
    """Starts with a slash, or is empty."""

    @classmethod
    def parse(cls, text: str) -> ConnectString:
        """Raise ValueError with the reason if the text is not a connection string."""
        hosts, _, path = text.strip().partition("/")
        names = path.strip("/").split("/") if path.strip("/") else []
        if any(not _NAME.fullmatch(name) or name in (".", "..") for name in names):
            raise ValueError(f"the path /{path} of {text!r} is not a path of ZooKeeper such as /ottla")
        addresses = tuple(_address(host.strip(), text) for host in hosts.split(","))
        return cls(addresses, "".join(f"/{name}" for name in names))

    @property
    def hosts(self) -> tuple[str, ...]:
        """Each address as ``host:port``."""
        return tuple(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.addresses)

    def __str__(self) -> str:
        return ",".join(self.hosts) + self.chroot


def _address(text: str, whole: str) -> tuple[str, int]:
    has_port = ":" in text.rpartition("]")[2]
    try:
        host, port = parse_address(text if has_port else f"{text}:{_DEFAULT_PORT}")
    except ValueError:
        host, port = "", 0
    if not host or not port or any(character.isspace() for character in host):
        raise ValueError(f"{whole!r} is not an address of ZooKeeper such as localhost:2181 or zk1:2181,zk2:2181/ottla")
    return host, port
