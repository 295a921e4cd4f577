"""Small values that every layer shares, and checks of integers and topic names."""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from typing import TypeAlias

Millis: TypeAlias = int
"""Integer milliseconds: a time since the epoch, or a duration."""

BrokerId: TypeAlias = int
NO_PRODUCER_ID = -1
NO_TIMESTAMP = -1
MAX_TOPIC_NAME = 249
LONGEST_SHOWN = 80
"""Characters of a wrong value that an error message shows."""
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
    """Check an int and return it. Other integer types such as numpy's are accepted; floats and bools are not.

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
        raise TypeError(f"{what} must be an int, not {shown}{advice}") from None
    if least is not None and number < least:
        raise ValueError(f"{what} must be at least {least}, not {number}")
    if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
        raise ValueError(f"{what} must fit into {bits} bits, but {number} does not")
    return number


def wrong_with_topic_name(name: str) -> str | None:
    """Why Kafka does not allow this name, as the end of a sentence; None if it is valid.

    >>> wrong_with_topic_name("orders.v1")
    >>> wrong_with_topic_name("my orders")
    "may only contain ASCII letters and digits, '.', '_' and '-'"
    """
    if not name:
        return "is empty"
    if name in (".", ".."):
        return "may not be '.' or '..'"
    if len(name) > MAX_TOPIC_NAME:
        return f"has {len(name)} characters; the limit is {MAX_TOPIC_NAME}"
    if not _LEGAL_TOPIC_NAME.fullmatch(name):
        return "may only contain ASCII letters and digits, '.', '_' and '-'"
    return None
