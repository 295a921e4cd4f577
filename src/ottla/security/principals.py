"""Principals: who sends a request."""

from __future__ import annotations

from typing import NamedTuple


class Principal(NamedTuple):
    """Who sends the requests of a connection, in Kafka's form.

    >>> str(Principal("User", "alice"))
    'User:alice'
    """

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")
"""Who has not authenticated."""


def parse_principals(text: str) -> frozenset[Principal]:
    """Read principals that semicolons separate, as in super.users. Raise ValueError with the reason.

    >>> sorted(parse_principals("User:CN=broker-1,O=ottla;User:admin"))
    [Principal(type='User', name='CN=broker-1,O=ottla'), Principal(type='User', name='admin')]
    """
    return frozenset(parse_principal(each.strip()) for each in text.split(";") if each.strip())


def parse_principal(text: str) -> Principal:
    """Read a principal in Kafka's form. Raise ValueError with the reason.

    >>> parse_principal("User:alice")
    Principal(type='User', name='alice')
    """
    kind, colon, name = text.partition(":")
    if not kind or not colon or not name:
        raise ValueError(f"{text!r} is not a principal such as User:alice")
    return Principal(kind, name)
