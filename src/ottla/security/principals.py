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
