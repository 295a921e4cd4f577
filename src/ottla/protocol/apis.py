"""The keys of Kafka's APIs, by Kafka's names, and what is known of each: versions and which are flexible."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from ottla.protocol._schemas import APIS


class Api(NamedTuple):
    """What the schemas say of one API.

    >>> api(3).name, api(3).last
    ('metadata', 13)
    """

    key: int
    name: str
    first: int
    last: int
    flexible_from: int


ApiKey = IntEnum("ApiKey", {entry[0].upper(): key for key, entry in APIS.items()})  # type: ignore[misc]


def api(key: int) -> Api:
    """Return what is known of an API; KeyError for one that the schemas do not have."""
    name, first, last, flexible_from = APIS[key][:4]
    return Api(key, name, first, last, flexible_from)
