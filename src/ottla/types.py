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
SECONDS_BELOW = 1e11
"""A smaller time is taken for seconds: as milliseconds it would be before March 1973."""
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


def shown(given: object) -> str:
    """A wrong value in an error message, shortened."""
    text = repr(given)
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 1]}…"


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
        raise TypeError(f"{what} must be an int, not {shown(given)}{advice}") from None
    if least is not None and number < least:
        raise ValueError(f"{what} must be at least {least}, not {number}")
    if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
        raise ValueError(f"{what} must fit into {bits} bits, but {number} does not")
    return number


def topic_partition(given: object) -> TopicPartition:
    """Check a partition and return it. That of another client, or a pair, is rejected, with what to write.

    >>> topic_partition(TopicPartition("orders", 0))
    TopicPartition(topic='orders', partition=0)
    """
    if isinstance(given, TopicPartition):
        return given
    alone = given[0] if isinstance(given, list | tuple) and len(given) == 1 else None
    advice = f": write {alone!r}, without a list" if isinstance(alone, TopicPartition) else partition_advice(given)
    raise TypeError(f"a partition must be an ottla.TopicPartition('topic', 0), not {shown(given)}{advice}")


def partition_advice(given: object) -> str:
    """What to write for a pair or the object of another client that means a partition; empty for anything else.

    >>> partition_advice(("orders", 0))
    ": write ottla.TopicPartition('orders', 0)"
    """
    pair = given if isinstance(given, tuple) else (getattr(given, "topic", None), getattr(given, "partition", None))
    match pair:
        case (str() as topic, int() as partition):
            return f": write ottla.TopicPartition({topic!r}, {partition})"
    return ""


def millis(given: object, what: str) -> Millis:
    """Check a time in milliseconds since 1970. Seconds and `datetime` objects are rejected, with the conversion.

    >>> millis(1_700_000_000_000, "the timestamp")
    1700000000000
    """
    name = type(given).__name__
    if isinstance(given, float):
        in_seconds = abs(given) < SECONDS_BELOW
        advice = f"int({given!r} * 1000) for seconds, such as time.time()" if in_seconds else f"int({given!r})"
        raise TypeError(f"{what} must be an int, in milliseconds since 1970, not {given!r}: write {advice}")
    if name in ("datetime", "Timestamp") and hasattr(given, "timestamp"):
        advice = "write int(x.timestamp() * 1000)"
        raise TypeError(f"{what} must be an int, in milliseconds since 1970, not a {name}: {advice}")
    number = whole(given, f"{what}, in milliseconds since 1970,")
    if number < 0:
        raise ValueError(f"{what} must be at least 0, in milliseconds since 1970, not {number}")
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
