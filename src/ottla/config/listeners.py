"""Parse listeners: ``NAME://host:port``. An empty host means all interfaces. IPv6 hosts are in brackets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_LISTENER = re.compile(r"([A-Za-z0-9_.-]+)://(\[[0-9A-Fa-f:.%]*\]|[^\[\]:/@]*):(-?[0-9]{1,9})")
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.%]*\]|[^\[\]:/@]*):([0-9]{1,5})")
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
ANY_HOST = ("", "0.0.0.0", "::")


class Listener(NamedTuple):
    """An address that the broker listens on or advertises.

    >>> Listener.parse("PLAINTEXT://localhost:9092")
    Listener(name='PLAINTEXT', host='localhost', port=9092)
    """

    name: str
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Listener:
        """Raise ValueError with the reason if the text is not a listener."""
        match = _LISTENER.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a listener such as PLAINTEXT://localhost:9092")
        name, host, port = match.groups()
        if not 0 <= int(port) <= 65535:
            raise ValueError(f"the port of {text!r} must be between 0 and 65535")
        return cls(name.upper(), host.strip("[]"), int(port))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"

    @property
    def is_any_host(self) -> bool:
        return self.host in ANY_HOST


def parse_address(text: str) -> tuple[str, int]:
    """Split ``host:port``. Raise ValueError with the reason if the text is not an address.

    >>> parse_address("[::1]:9090")
    ('::1', 9090)
    """
    if "://" in text:
        protocol, _, address = text.partition("://")
        advice = f", and set security.protocol={protocol.upper()}" if protocol.upper() in _PROTOCOLS else ""
        raise ValueError(f"{text!r} is not an address such as 127.0.0.1:9090: write {address}{advice}")
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match[2]) > 65535:
        raise ValueError(f"{text!r} is not an address such as 127.0.0.1:9090")
    return match[1].strip("[]"), int(match[2])


def problem_of_listeners(listeners: Sequence[Listener]) -> str | None:
    """Return why these listeners cannot be opened together, or None."""
    names = [listener.name for listener in listeners]
    if not listeners:
        return "at least one listener is required"
    if len(set(names)) != len(names):
        return "two listeners have the same name"
    return _shared_port(listeners)


def _shared_port(listeners: Sequence[Listener]) -> str | None:
    by_port: dict[int, set[bool]] = {}
    for listener in listeners:
        families = by_port.setdefault(listener.port, set())
        is_v6 = ":" in listener.host
        # One IPv4 and one IPv6 listener can share a port. Port 0 picks a new port each time.
        if listener.port != 0 and (is_v6 in families or (families and _any_name(listeners, listener.port))):
            return f"two listeners use port {listener.port}"
        families.add(is_v6)
    return None


def _any_name(listeners: Sequence[Listener], port: int) -> bool:
    return any(each.port == port and not _is_literal(each.host) for each in listeners)


def _is_literal(host: str) -> bool:
    return ":" in host or re.fullmatch(r"[0-9.]+", host) is not None


def problem_of_advertised(advertised: Sequence[Listener], listeners: Sequence[Listener]) -> str | None:
    """Return why these addresses cannot be advertised, or None."""
    names = {listener.name for listener in listeners}
    for listener in advertised:
        if listener.name not in names:
            return f"there is no listener named {listener.name}"
        if listener.is_any_host:
            return f"{listener} is not an address that a client can connect to"
    if len({listener.name for listener in advertised}) != len(advertised):
        return "a listener is advertised twice"
    return None


def controller_listeners(values: Mapping[str, object]) -> frozenset[str]:
    """Return the names of the listeners of Kafka's controllers, which this broker does not have."""
    names = values.get("controller.listener.names", values.get("controller_listener_names", ""))
    return frozenset(name.strip().upper() for name in str(names).split(",") if name.strip())
