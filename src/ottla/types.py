"""The small values that every layer shares: frozen, slotted, without behaviour. And which names topics may have."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

Millis: TypeAlias = int
"""Integer milliseconds: a point in time since the epoch, or a length of time."""

ProducerId: TypeAlias = int
BrokerId: TypeAlias = int
NO_PRODUCER_ID = -1
NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1
MAX_TOPIC_NAME = 249
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
