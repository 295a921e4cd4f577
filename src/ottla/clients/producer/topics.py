"""The topics that a producer writes to: fetched at first use, kept fresh, forgotten when idle.

Everything here runs on the loop, except `lanes_of`, which may be called from any thread.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from ottla.clients.cluster.cluster import Cluster
from ottla.clients.cluster.metadata import NO_LEADER, Metadata, TopicInfo
from ottla.config.producer import ProducerConfig
from ottla.errors import AuthenticationError, KafkaError, OttlaError, UnknownTopicOrPartition
from ottla.producing.errors import MetadataTimeout
from ottla.producing.values import View
from ottla.records.builder import Lanes
from ottla.types import TopicPartition

log = logging.getLogger("ottla.producer")


class Topics:
    """The metadata of the topics in use."""

    def __init__(
        self,
        config: ProducerConfig,
        cluster: Cluster,
        lanes: dict[str, Lanes],
        adopt: Callable[[Lanes], None],
        changed: Callable[[], None],
        rejected: Callable[[AuthenticationError], None],
    ) -> None:
        self.view = View()
        self.names: dict[UUID | str, str] = {}
        self._config = config
        self._cluster = cluster
        self._lanes = lanes
        self._adopt = adopt
        self._changed = changed
        self._rejected = rejected
        self._asking: dict[str, asyncio.Task[bool]] = {}
        self._problem: Exception | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._stale: set[str] = set()
        self._aging: asyncio.Task[None] | None = None
        self._used: dict[str, float] = {}
        self._warned = False

    @property
    def tasks(self) -> list[asyncio.Task[Any]]:
        others = [task for task in (self._refreshing, self._aging) if task is not None]
        return [*self._asking.values(), *others]

    def lanes_of(self, topic: str) -> Lanes | None:
        """The lanes of a known topic; from any thread."""
        self._used[topic] = time.monotonic()
        return self._lanes.get(topic)

    def partitions_of(self, topic: str) -> set[int]:
        info = self._cluster.metadata.topics.get(topic)
        return set(info.partitions) if info is not None else set()

    async def wait_for(self, topic: str, timeout: float) -> None:
        """Return when the topic is known; MetadataTimeout after so many seconds."""
        try:
            async with asyncio.timeout(max(timeout, 0)):
                # All callers share an attempt; one that came late may need another.
                while not await asyncio.shield(self._attempt(topic)):
                    pass
        except TimeoutError:
            raise MetadataTimeout(self._why_unknown(topic)) from None
        if self._aging is None:
            self._aging = asyncio.create_task(self._keep_fresh())

    def _attempt(self, topic: str) -> asyncio.Task[bool]:
        task = self._asking.get(topic)
        if task is None:
            task = self._asking[topic] = asyncio.create_task(self._ask(topic))
            task.add_done_callback(_retrieve)
        return task

    async def _ask(self, topic: str) -> bool:
        """Fetch metadata repeatedly for as long as a send may wait; whether the topic is known then."""
        attempts = self._cluster.attempts(max(self._config.max_block_ms, 1))
        try:
            while True:
                try:
                    await self._refresh([topic])
                except OttlaError as error:
                    self._problem = error
                    if not (isinstance(error, KafkaError) and error.retriable):
                        raise
                    if self._cluster.never_reached:
                        self.warn_of(error)
                        if attempts.elapsed_ms >= self._config.first_contact_ms:
                            raise
                if topic in self._lanes:
                    self._problem = None
                    return True
                info = self._cluster.metadata.topics.get(topic)
                if info is not None and info.error is not None:
                    self._problem = info.error
                    if not info.error.retriable:
                        raise type(info.error)(f"topic {topic}: {info.error}")
                if not await attempts.pause():
                    await asyncio.sleep(self._config.retry_backoff_ms / 1000)
                    return False
        finally:
            self._asking.pop(topic, None)

    def warn_of(self, error: Exception) -> None:
        """Say at once that no broker answers, since the caller waits."""
        if not self._warned and error is not self._cluster.trouble:
            self._warned = True
            log.warning("%s. The producer keeps trying for %g s", error, self._config.first_contact_ms / 1000)

    def _why_unknown(self, topic: str) -> str:
        since = f"no metadata for topic {topic!r} within {self._config.max_block_ms / 1000:g} s (max.block.ms)"
        if isinstance(self._problem, UnknownTopicOrPartition):
            return f"{since}: it does not exist, and no broker creates it. `ottla topics create {topic}` does"
        problem = self._problem or self._cluster.trouble
        return f"{since}: {problem}" if problem is not None else since

    async def _refresh(self, topics: Iterable[str]) -> None:
        # A producer creates a topic that is missing or was deleted, as Kafka's does.
        await self._cluster.refresh(list(topics), auto_create=True)
        self._see(self._cluster.metadata)
        self._changed()

    def _see(self, metadata: Metadata) -> None:
        led = {}
        for name, info in metadata.topics.items():
            if info.error is not None:
                # Deleted or forbidden: the next record requests it again and gets the error.
                self._lanes.pop(name, None)
                continue
            self._see_topic(info)
            led[name] = {
                number: partition.leader
                for number, partition in info.partitions.items()
                if partition.leader != NO_LEADER and partition.leader in metadata.nodes
            }
        leaders = {
            TopicPartition(name, number): leader
            for name, partitions in led.items()
            for number, leader in partitions.items()
        }
        self.view = View(leaders, led)

    def _see_topic(self, info: TopicInfo) -> None:
        self.names[info.name] = info.name
        if info.topic_id is not None:
            self.names[info.topic_id] = info.name
        known = self._lanes.get(info.name)
        if info.partitions and (known is None or known.partitions != max(info.partitions) + 1):
            lanes = Lanes(info.name, max(info.partitions) + 1)
            self._adopt(lanes)
            self._lanes[info.name] = lanes

    # Keeping it fresh.

    def refresh_soon(self, topics: Iterable[str]) -> None:
        """Refresh some topics, with a pause between two rounds."""
        self._stale.update(topics)
        if self._refreshing is None:
            self._refreshing = asyncio.create_task(self._refresh_stale())

    def refresh_all_soon(self) -> None:
        self.refresh_soon(self._lanes)

    async def _refresh_stale(self) -> None:
        try:
            while self._stale:
                topics, self._stale = self._stale, set()
                try:
                    await self._refresh(topics)
                except AuthenticationError as error:
                    # The next record tries again.
                    self._rejected(error)
                    return
                except OttlaError:
                    self._stale |= topics
                await asyncio.sleep(self._config.retry_backoff_ms / 1000)
        finally:
            self._refreshing = None
            self._changed()

    async def _keep_fresh(self) -> None:
        """Refresh all topics in use after metadata.max.age.ms, and forget those that are not used any more."""
        while True:
            await asyncio.sleep(self._config.metadata_max_age_ms / 1000)
            idle = time.monotonic() - self._config.metadata_max_idle_ms / 1000
            in_use = [topic for topic in self._lanes if self._used.get(topic, 0.0) > idle]
            # The fast path does not record its use, but leaves an open batch in the lanes.
            for topic, lanes in self._lanes.items():
                if topic not in in_use and any(lanes.opened(number) for number in range(lanes.partitions)):
                    in_use.append(topic)
            if in_use:
                self.refresh_soon(in_use)


def _retrieve(task: asyncio.Task[bool]) -> None:
    if not task.cancelled():
        task.exception()
