"""Requests and responses that list partitions by topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from ottla.protocol.codec import Struct
from ottla.types import TopicPartition

T = TypeVar("T")


def partitions_of(topics: Iterable[Struct], name: str = "name", indexes: str = "partitions") -> list[TopicPartition]:
    """Return the partitions that a request names, each once."""
    found = [TopicPartition(getattr(topic, name), index) for topic in topics for index in getattr(topic, indexes)]
    return list(dict.fromkeys(found))


def by_topic(results: Mapping[TopicPartition, T]) -> dict[str, list[tuple[TopicPartition, T]]]:
    """Return results by topic, as responses list them.

    >>> list(by_topic({TopicPartition("orders", 0): None, TopicPartition("orders", 1): None}))
    ['orders']
    """
    topics: dict[str, list[tuple[TopicPartition, T]]] = {}
    for key, result in results.items():
        topics.setdefault(key.topic, []).append((key, result))
    return topics
