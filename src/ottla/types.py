"""The small values that every layer shares: frozen, slotted, without behaviour of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Millis: TypeAlias = int
"""Integer milliseconds: a point in time since the epoch, or a length of time."""

ProducerId: TypeAlias = int
BrokerId: TypeAlias = int
NO_PRODUCER_ID = -1
NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1


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
