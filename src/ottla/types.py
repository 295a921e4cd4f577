"""The small values that every layer shares: frozen, slotted, without behaviour. And what names of topics and whole
numbers are."""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from typing import TypeAlias

Millis: TypeAlias = int
"""Integer milliseconds: a point in time since the epoch, or a length of time."""

BrokerId: TypeAlias = int
NO_PRODUCER_ID = -1
NO_TIMESTAMP = -1
MAX_TOPIC_NAME = 249
LONGEST_SHOWN = 80
"""Of what somebody gave, in a message about it."""
_LEGAL_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One partition of one topic.

    >>> str(TopicPartition("orders", 3))
    'orders-3'
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def whole(given: object, what: str, *, least: int | None = None, bits: int = 64) -> int:
    """An int, of whatever counts as one, as those of numpy do. A float or a bool only looks like it, and would be found
    out far from whoever gave it.

    >>> whole(7, "the offset")
    7
    """
    try:
        if isinstance(given, bool):
            raise TypeError
        number = operator.index(given)  # type: ignore[arg-type]
    except TypeError:
        advice = f": write int({given!r})" if isinstance(given, float) else ""
        shown = repr(given)
        shown = shown if len(shown) <= LONGEST_SHOWN else f"{shown[:LONGEST_SHOWN]}…"
        raise TypeError(f"{what} is an int, not {shown}{advice}") from None
    if least is not None and number < least:
        raise ValueError(f"{what} is at least {least}, not {number}")
    if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
        raise ValueError(f"{what} has to fit into {bits} bits, and {number} does not")
    return number


def wrong_with_topic_name(name: str) -> str | None:
    """What Kafka does not allow about a name, in words that go on after it; None if it may be one.

    >>> wrong_with_topic_name("orders.v1")
    >>> wrong_with_topic_name("my orders")
    "may only have ASCII letters and digits, '.', '_' and '-'"
    """
    if not name:
        return "is empty"
    if name in (".", ".."):
        return "may not be '.' or '..'"
    if len(name) > MAX_TOPIC_NAME:
        return f"has {len(name)} characters, and {MAX_TOPIC_NAME} are allowed"
    if not _LEGAL_TOPIC_NAME.fullmatch(name):
        return "may only have ASCII letters and digits, '.', '_' and '-'"
    return None
