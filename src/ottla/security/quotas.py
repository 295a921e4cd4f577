"""Client quotas: whom they are for, what they may be, and which one counts for a client. Names are Kafka's."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from ottla.errors import InvalidRequest, UnsupportedVersion
from ottla.suggestions import did_you_mean

USER, CLIENT_ID, IP = "user", "client-id", "ip"
ENTITY_TYPES = (USER, CLIENT_ID, IP)
PRODUCER_BYTES = "producer_byte_rate"
CONSUMER_BYTES = "consumer_byte_rate"
REQUEST_TIME = "request_percentage"
MUTATIONS = "controller_mutation_rate"
CONNECTIONS = "connection_creation_rate"

#: The quotas of users and client ids, and what each limits.
CLIENT_QUOTAS = {
    PRODUCER_BYTES: "bytes per second that are produced",
    CONSUMER_BYTES: "bytes per second that are fetched",
    REQUEST_TIME: "time that requests take, in percent of one thread",
    MUTATIONS: "partitions per second that are created or deleted",
}
#: The quotas of addresses.
IP_QUOTAS = {CONNECTIONS: "connections per second that are accepted"}
_WHOLE = {PRODUCER_BYTES: 2**63 - 1, CONSUMER_BYTES: 2**63 - 1, CONNECTIONS: 2**31 - 1}
#: The values that match a component of a filter.
EXACT, DEFAULT, ANY = 0, 1, 2

Entity: TypeAlias = tuple[tuple[str, str | None], ...]
"""Whom a quota is for: types and names in the order of `ENTITY_TYPES`. The name None is the default of a type."""
Quotas: TypeAlias = Mapping[Entity, Mapping[str, float]]


def entity(parts: Iterable[tuple[str, str | None]]) -> Entity:
    """Return the entity of types and names, or raise InvalidRequest.

    >>> entity([("client-id", None), ("user", "alice")])
    (('user', 'alice'), ('client-id', None))
    """
    names: dict[str, str | None] = {}
    for kind, name in parts:
        if kind not in ENTITY_TYPES:
            raise InvalidRequest(f"Unhandled client quota entity type: {kind}. Use user, client-id or ip.")
        if kind in names:
            raise InvalidRequest(f"Invalid client quota entity, duplicate entity entry {kind}.")
        if name == "":
            raise InvalidRequest(f"Empty {kind} not supported. Use a name, or the default.")
        names[kind] = name
    if not names:
        raise InvalidRequest("Invalid empty client quota entity. Name a user, a client-id or an ip.")
    if IP in names:
        if len(names) > 1:
            raise InvalidRequest("Invalid quota entity combination: an ip cannot be combined with a user or client-id.")
        names[IP] = _address(names[IP])
    return tuple((kind, names[kind]) for kind in ENTITY_TYPES if kind in names)


def _address(name: str | None) -> str | None:
    if name is None:
        return None
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        raise InvalidRequest(f"{name[:300]} is not a valid IP address. Names of hosts are not resolved.") from None


def describe(whom: Entity) -> str:
    """Return an entity in words.

    >>> describe((("user", "alice"), ("client-id", None)))
    'user=alice, client-id=<default>'
    """
    return ", ".join(f"{kind}={'<default>' if name is None else name}" for kind, name in whom)


def hint(name: str, allowed: Iterable[str]) -> str:
    """Return what to do about a quota that is not one of those that are allowed, as the next sentence.

    >>> hint(CONNECTIONS, CLIENT_QUOTAS)
    ' This quota is for addresses (ip).'
    """
    if name in IP_QUOTAS:
        return " This quota is for addresses (ip)."
    if name in CLIENT_QUOTAS:
        return f" This quota is for users and client ids. Use {', '.join(allowed)}."
    return did_you_mean(name, allowed) or f" Use {', '.join(allowed)}."


def check(whom: Entity, name: str, value: float) -> None:
    """Raise InvalidRequest if an entity cannot have such a quota."""
    allowed = IP_QUOTAS if whom[0][0] == IP else CLIENT_QUOTAS
    if name not in allowed:
        raise InvalidRequest(f"Invalid configuration key {name[:300]} for {describe(whom)}.{hint(name, allowed)}")
    if not value > 0:
        raise InvalidRequest(f"Quota {name} must be greater than 0, not {value:g}.")
    if math.isinf(value):
        raise InvalidRequest(f"Quota {name} must be a number. Remove it if there is no limit.")
    if name in _WHOLE:
        if value > _WHOLE[name]:
            raise InvalidRequest(f"Proposed value for {name} is too large: the most is {_WHOLE[name]}.")
        if value % 1 > 1e-6:
            raise InvalidRequest(f"{name} cannot be a fractional value, such as {value:g}.")


# ── which ones a client asks for ──────────────────────────────────────────────────────────────────────────────────


class Filter(NamedTuple):
    """The entities that a client asks for."""

    exact: Mapping[str, str | None]
    """The name that an entity must have of each type."""
    any_name: frozenset[str]
    """The types that an entity must have, with any name or the default."""
    strict: bool
    """No other types."""

    @classmethod
    def of(cls, components: Iterable[tuple[str, int, str | None]], *, strict: bool) -> Filter:
        """Return the filter of (type, kind of match, name). Raise the error that Kafka has for a wrong one."""
        exact: dict[str, str | None] = {}
        any_name: set[str] = set()
        for kind, match, name in components:
            if not kind:
                raise InvalidRequest("Invalid empty entity type.")
            if kind in exact or kind in any_name:
                raise InvalidRequest(f"Entity type {kind} cannot appear more than once in the filter.")
            if kind not in ENTITY_TYPES:
                raise UnsupportedVersion(f"Unsupported entity type {kind}. Use user, client-id or ip.")
            if match not in (EXACT, DEFAULT, ANY):
                raise InvalidRequest(f"Unknown match type {match}.")
            if (name is None) == (match == EXACT):
                says = "has no name to match" if match == EXACT else "has a name, but the match type takes none"
                raise InvalidRequest(f"The component {kind} {says}.")
            if match == ANY:
                any_name.add(kind)
            else:
                exact[kind] = name
        types = exact.keys() | any_name
        if IP in types and len(types) > 1:
            raise InvalidRequest("An ip in a filter cannot be combined with a user or client-id.")
        return cls(exact, frozenset(any_name), strict)

    def matches(self, whom: Entity) -> bool:
        names = dict(whom)
        if self.strict and len(names) != len(self.exact) + len(self.any_name):
            return False
        missing = object()
        exact = all(names.get(kind, missing) == name for kind, name in self.exact.items())
        return exact and self.any_name <= names.keys()


# ── which one counts ──────────────────────────────────────────────────────────────────────────────────────────────


class Limit(NamedTuple):
    """The quota of a client. Clients with the same user and client id share it; "" means that any client has it."""

    value: float
    user: str
    client_id: str


class QuotaTable:
    """Finds the quota of a client among those of all entities.

    >>> table = QuotaTable({(("user", "alice"),): {"producer_byte_rate": 1000.0}})
    >>> table.limit("producer_byte_rate", "alice", "app")
    Limit(value=1000.0, user='alice', client_id='')
    >>> table.limit("producer_byte_rate", "bob", "app")
    """

    def __init__(self, quotas: Quotas, names: frozenset[str] | None = None) -> None:
        self._quotas = quotas
        self.names = frozenset(name for each in quotas.values() for name in each) if names is None else names
        """The quotas that somebody has."""

    def limit(self, name: str, user: str, client_id: str) -> Limit | None:
        """Return the most specific quota for a client, in Kafka's order, or None."""
        if name not in self.names:
            return None
        me: Entity = ((USER, user),)
        anybody: Entity = ((USER, None),)
        this: Entity = ((CLIENT_ID, client_id),)
        others: Entity = ((CLIENT_ID, None),)
        for whom, scope in (
            (me + this, (user, client_id)),
            (me + others, (user, client_id)),
            (me, (user, "")),
            (anybody + this, (user, client_id)),
            (anybody + others, (user, client_id)),
            (anybody, (user, "")),
            (this, ("", client_id)),
            (others, ("", client_id)),
        ):
            value = self._quotas.get(whom, {}).get(name)
            if value is not None:
                return Limit(value, *scope)
        return None

    def connections(self, address: str) -> float | None:
        """Return how many connections per second an address may open, or None."""
        own = self._quotas.get(((IP, address),), {}).get(CONNECTIONS)
        return own if own is not None else self._quotas.get(((IP, None),), {}).get(CONNECTIONS)
