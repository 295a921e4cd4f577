"""The topics that the members of a classic group subscribe to, as far as their metadata can be read."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.coordinator import messages as m
from ottla.protocol.codec import DecodeError, decode_data


def topics_of(metadata: bytes) -> Iterable[str]:
    """Return the topics of a consumer's subscription, or raise DecodeError."""
    # Every version begins with the fields of version 0.
    topics: Iterable[str] = decode_data("consumer_protocol_subscription", 0, metadata, 2).topics
    return topics


def topics_of_all(subscriptions: Iterable[bytes]) -> set[str] | None:
    """Return the topics of all subscriptions, or None if one of them cannot be read."""
    try:
        return {topic for metadata in subscriptions for topic in topics_of(metadata)}
    except DecodeError:
        return None


def same_topics(before: Iterable[m.MemberProtocol], after: Iterable[m.MemberProtocol]) -> bool:
    """Return whether two subscriptions of a consumer ask for the same.

    A subscription also lists the partitions that the consumer owns, which change with every generation.
    """
    return _wanted(before) == _wanted(after)


def _wanted(protocols: Iterable[m.MemberProtocol]) -> list[object]:
    wanted: list[object] = []
    for name, metadata in protocols:
        topics = topics_of_all([metadata])
        wanted.append((name, metadata if topics is None else sorted(topics)))
    return wanted
