"""Keeps the metadata of a consumer fresh, and notices missing, recreated and newly matching topics."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.clients.cluster.metadata import Metadata, TopicInfo
from ottla.clients.consumer.group import monotonic_ms
from ottla.consuming.classic import ClassicMember
from ottla.consuming.membership import Topics
from ottla.consuming.subscription import Mode
from ottla.errors import (
    InvalidTopicException,
    KafkaError,
    OttlaError,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from ottla.types import Millis

if TYPE_CHECKING:
    from ottla.clients.consumer.core import Engine

log = logging.getLogger("ottla.consumer")
#: How soon the metadata of a missing topic is requested again.
MISSING_TOPIC_MS: Millis = 2_000


class Refresher:
    """Fetches metadata, one request at a time, and passes it to the parts of the consumer."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.due_at: Millis = 0
        self.knows_all_topics = False
        self._busy = False
        self._again = False
        self._missing: set[str] = set()
        self._warned_of: tuple[str, str] | None = None

    def _topics(self) -> frozenset[str] | None:
        """The topics whose metadata is needed; None for all, since a pattern may match any."""
        engine = self._engine
        if engine.subscription.mode is Mode.PATTERN:
            return None
        topics = engine.subscription.topics | {key.topic for key in engine.positions.assigned}
        member = engine.group.member if engine.group is not None and engine.group.subscribed else None
        return topics | member.watched if isinstance(member, ClassicMember) else topics

    def refresh(self, *, later: bool = False) -> None:
        """Fetch metadata now, or after a back-off; at most one at a time."""
        engine = self._engine
        if engine.closed or engine.loop is None:
            return
        if later:
            self.due_at = min(self.due_at, monotonic_ms() + engine.config.retry_backoff_ms)
            return
        if self._busy:
            self._again = True
            return
        self._busy = True
        self.due_at = monotonic_ms() + engine.config.metadata_max_age_ms
        engine.spawn(self._refresh())

    async def _refresh(self) -> None:
        engine = self._engine
        wanted = self._topics()
        try:
            answer = await engine.cluster.refresh(wanted, auto_create=engine.config.allow_auto_create_topics)
        except OttlaError as error:
            if not engine.cluster.metadata.nodes:
                engine.unreachable = error
            if not (isinstance(error, KafkaError) and error.retriable):
                engine.fail(error)
            self.due_at = monotonic_ms() + engine.config.retry_backoff_ms
        else:
            engine.unreachable = None
            self.knows_all_topics = wanted is None
            self._learned(answer, wanted)
        finally:
            self._busy = False
        if self._again:
            self._again = False
            self.refresh()
        engine.attend()

    def _learned(self, answer: Metadata, wanted: frozenset[str] | None) -> None:
        engine = self._engine
        self._find_missing(answer)
        internal = engine.config.exclude_internal_topics
        there = {name: topic for name, topic in answer.topics.items() if topic.error is None}
        visible = [name for name, topic in there.items() if not (internal and topic.internal)]
        engine.subscription.match(visible)
        if wanted is None:
            self._warn_of_pattern(visible)
        self._find_recreated(there)
        for key in engine.positions.assigned:
            info = answer.partition(key)
            if info is not None:
                engine.positions.new_leader(key, info.leader_epoch)
        if engine.group is not None:
            engine.tell_group()
            counts = {name: len(topic.partitions) for name, topic in there.items()}
            ids = {name: topic.topic_id for name, topic in there.items() if topic.topic_id is not None}
            engine.group.member.learned(Topics(counts, ids, wanted))

    def _warn_of_pattern(self, topics: list[str]) -> None:
        """Warn once of a pattern that would match in a client where the beginning of a name is enough."""
        found = self._engine.subscription.too_narrow(topics)
        if found is not None and found != self._warned_of:
            self._warned_of = found
            log.warning(
                "the pattern matches no topic: it has to match the whole name. To read %s and all others that begin "
                "like it, append .*, as in subscribe(pattern=%r)",
                found[1],
                found[0],
            )

    def _find_recreated(self, there: Mapping[str, TopicInfo]) -> None:
        engine = self._engine
        recreated = set()
        for key in engine.positions.assigned:
            topic = there.get(key.topic)
            if topic is not None and topic.topic_id is not None and engine.positions.topic_is(key, topic.topic_id):
                recreated.add(key.topic)
        for name in sorted(recreated):
            log.warning("topic %s was deleted and created again: reading it from where auto.offset.reset says", name)
        engine.attention = engine.attention or bool(recreated)

    def _find_missing(self, answer: Metadata) -> None:
        engine = self._engine
        missing = set()
        for name, topic in answer.topics.items():
            if isinstance(topic.error, TopicAuthorizationFailed | InvalidTopicException):
                engine.fail(type(topic.error)(f"topic {name}: {topic.error}"))
            elif topic.error is not None:
                missing.add(name)
        for name in sorted(missing - self._missing):
            if isinstance(answer.topics[name].error, UnknownTopicOrPartition):
                log.warning("topic %s does not exist: waiting for it (is the name right? `ottla topics list`)", name)
        self._missing = missing
        if missing:
            self.due_at = min(self.due_at, monotonic_ms() + MISSING_TOPIC_MS)
