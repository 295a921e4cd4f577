"""What to read: topics, a pattern, or partitions. They exclude each other.

    subscribe(topics) ┐
    subscribe(pattern)├─ until unsubscribe()
    assign(partitions)┘

A pattern is matched here against the topics of the cluster (classic protocol), or by the broker (consumer protocol).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from enum import Enum

from ottla.errors import InvalidTopicException, OttlaError
from ottla.types import LONGEST_SHOWN, TopicPartition, topic_partition, whole, wrong_with_topic_name


class Mode(Enum):
    """The kind of subscription."""

    NONE = "nothing"
    TOPICS = "topics"
    PATTERN = "a pattern"
    PARTITIONS = "partitions"


class SubscriptionConflict(OttlaError):
    """Topics, a pattern and partitions cannot be mixed."""


class Subscription:
    """The present subscription. `version` increases with each change that the group must know."""

    def __init__(self) -> None:
        self.mode = Mode.NONE
        self.topics: frozenset[str] = frozenset()
        self.pattern: re.Pattern[str] | None = None
        self.server_pattern: str | None = None
        self.partitions: frozenset[TopicPartition] = frozenset()
        self.version = 0

    @property
    def by_group(self) -> bool:
        """Whether a group coordinator assigns the partitions."""
        return self.mode in (Mode.TOPICS, Mode.PATTERN)

    def subscribe(self, topics: Collection[str]) -> None:
        if isinstance(topics, str):
            raise TypeError(f"subscribe takes a list of topics: write subscribe([{topics!r}])")
        wanted = frozenset(map(_name, topics))
        self._enter(Mode.TOPICS)
        if wanted != self.topics:
            self.topics = wanted
            self.version += 1

    def subscribe_pattern(self, pattern: str | re.Pattern[str], *, on_server: bool) -> None:
        text = pattern if isinstance(pattern, str) else pattern.pattern
        compiled = None if on_server else re.compile(pattern)
        self._enter(Mode.PATTERN)
        self.pattern = compiled
        self.server_pattern = text if on_server else None
        self.topics = frozenset()
        self.version += 1

    def match(self, topics: Iterable[str]) -> bool:
        """Update the topics from those of the cluster that match the pattern; whether anything changed."""
        if self.pattern is None:
            return False
        # As in Kafka, the whole name has to match.
        matching = frozenset(topic for topic in topics if self.pattern.fullmatch(topic))
        if matching == self.topics:
            return False
        self.topics = matching
        self.version += 1
        return True

    def too_narrow(self, topics: Collection[str]) -> tuple[str, str] | None:
        """For a pattern that matches no topic, but the beginning of one, as kafka-python's and aiokafka's patterns do:
        the pattern to write, and that topic."""
        text = self.server_pattern if self.pattern is None else self.pattern.pattern
        pattern = _tried(text) if self.pattern is None else self.pattern
        if text is None or pattern is None or any(map(pattern.fullmatch, topics)):
            return None
        begun = (topic for topic in topics if (found := pattern.match(topic)) is not None and found.end())
        return next(((_continued(text), topic) for topic in begun), None)

    def assign(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        """Read these partitions, and return them as plain names and numbers."""
        wanted = [_partition(partition) for partition in partitions]
        self._enter(Mode.PARTITIONS)
        self.partitions = frozenset(wanted)
        return wanted

    def unsubscribe(self) -> None:
        version = self.version + 1
        self.__init__()  # type: ignore[misc]
        self.version = version

    def _enter(self, mode: Mode) -> None:
        if self.mode not in (Mode.NONE, mode):
            raise SubscriptionConflict(
                f"this consumer already reads {self.mode.value}, and topics, patterns and partitions cannot be mixed: "
                "call unsubscribe() first"
            )
        self.mode = mode


def _partition(given: object) -> TopicPartition:
    partition = topic_partition(given)
    topic = _name(partition.topic)
    number = whole(partition.partition, f"the partition of topic {topic}")
    if number < 0:
        raise ValueError(f"topic {topic} cannot have a partition {number}: partitions are numbered from 0")
    return TopicPartition(topic, number)


def _name(topic: object) -> str:
    """Return a name as plain text, even for a member of an enum. Invalid names fail here, since no broker can ever
    have such a topic."""
    if not isinstance(topic, str) or not topic.strip():
        raise ValueError(f"{topic!r} is not a topic name")
    if (problem := wrong_with_topic_name(topic)) is not None:
        raise InvalidTopicException(f"the topic name {topic[:300]!r} {problem}{_pattern_hint(topic)}")
    return str.__str__(topic)


def _continued(pattern: str) -> str:
    """A pattern for all names that begin with a match of this one."""
    return f"({pattern}).*" if "|" in pattern else f"{pattern}.*"


def _tried(pattern: str | None) -> re.Pattern[str] | None:
    """Compile a pattern for the broker, whose syntax differs in rare cases."""
    try:
        return None if pattern is None else re.compile(pattern)
    except re.error:
        return None


def _pattern_hint(topic: str) -> str:
    """What to write for a name of librdkafka that starts with ^, and matches the beginning of topics."""
    if not topic.startswith("^") or len(topic) > LONGEST_SHOWN:
        return ""
    whole_name = topic if topic.endswith(("$", ".*")) else _continued(topic)
    return f". To read all topics that match, write subscribe(pattern={whole_name!r})"
