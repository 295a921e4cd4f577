"""Poll a cluster: groups, committed offsets, bounds of logs, lag, retention, partitions without a leader.

A poll sends a fixed number of requests to each broker, whatever the number of groups and partitions: Metadata,
ListGroups, FindCoordinator, OffsetFetch, ListOffsets (two and at most `ROUNDS`), and at most `LOOKS` small fetches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

from ottla.clients.admin.group_offsets import committed_offsets
from ottla.clients.admin.groups import ListedGroup, list_groups
from ottla.clients.admin.lag import log_bounds, measure
from ottla.clients.admin.topics import describe_configs
from ottla.clients.admin.values import ConfigResource
from ottla.clients.cluster.cluster import Cluster
from ottla.clients.cluster.metadata import NO_LEADER, Metadata
from ottla.errors import KafkaError
from ottla.monitoring.lag import Lags
from ottla.monitoring.watch import Observation
from ottla.types import Millis, TopicPartition

ROUNDS = 4
LOOKS = 20
CONFIGS_FOR: Millis = 600_000
"""The retention of a topic is asked for again after this time."""


class Poller:
    """Polls one cluster again and again."""

    def __init__(self, cluster: Cluster, now: Callable[[], Millis], *, dead_letters: Iterable[str] = ()) -> None:
        self._cluster = cluster
        self._now = now
        self._dead_letters = tuple(dead_letters)
        self.lags = Lags()
        self.groups: list[ListedGroup] = []
        """The groups of consumers, as the last poll listed them."""
        self.problems = 0
        """How many groups could not be asked for in the last poll."""
        self._retention: dict[str, tuple[Millis, Millis | None]] = {}

    async def poll(self, metadata: Metadata | None = None) -> Observation:
        """One observation. Raises KafkaError if the cluster cannot be reached. `metadata` was read just before."""
        metadata = metadata or await self._cluster.refresh(None)
        self.groups = [group for group in await list_groups(self._cluster) if group.of_consumers]
        committed = await self._committed([group.group_id for group in self.groups])
        positions: dict[TopicPartition, list[int]] = {}
        for offsets in committed.values():
            for key, offset in offsets.items():
                positions.setdefault(key, []).append(offset)
        dead = [key for key in _partitions(metadata) if self._has_dead_letters(key.topic)]
        bounds = await log_bounds(self._cluster, sorted({*positions, *dead}))
        read = {key: some for key, some in positions.items() if key in bounds}
        wanted = {key: bounds[key] for key in read}
        await measure(self._cluster, self.lags, read, wanted, rounds=ROUNDS, looks=LOOKS, now=self._now)
        return Observation(
            now=self._now(),
            committed=committed,
            bounds=bounds,
            offline=frozenset(_offline(metadata)),
            retention=await self._retentions({key.topic for key in read}),
            dead_letters={key: bounds[key][1] for key in dead if key in bounds},
        )

    async def _committed(self, groups: list[str]) -> dict[str, dict[TopicPartition, int]]:
        found = await committed_offsets(self._cluster, groups)
        known = {group: one for group, one in found.items() if not isinstance(one, KafkaError)}
        self.problems = len(found) - len(known)
        return {group: {key: one.offset for key, one in some.items()} for group, some in known.items()}

    def _has_dead_letters(self, topic: str) -> bool:
        return any(fnmatchcase(topic, pattern) for pattern in self._dead_letters)

    async def _retentions(self, topics: set[str]) -> dict[str, Millis]:
        old = self._now() - CONFIGS_FOR
        missing = [topic for topic in topics if self._retention.get(topic, (old, None))[0] <= old]
        if missing:
            names = ["retention.ms", "cleanup.policy"]
            wanted = {ConfigResource.topic(topic): names for topic in sorted(missing)}
            for resource, found in (await describe_configs(self._cluster, wanted)).items():
                values = {} if isinstance(found, KafkaError) else {name: one.value for name, one in found.items()}
                kept = int(values.get("retention.ms") or -1)
                deletes = "delete" in (values.get("cleanup.policy") or "")
                self._retention[resource.name] = self._now(), kept if deletes and kept > 0 else None
        known = {topic: self._retention[topic][1] for topic in topics if topic in self._retention}
        return {topic: kept for topic, kept in known.items() if kept is not None}


def _partitions(metadata: Metadata) -> Iterable[TopicPartition]:
    return (key for topic in metadata.topics.values() for key in topic.topic_partitions)


def _offline(metadata: Metadata) -> Iterable[TopicPartition]:
    for topic in metadata.topics.values():
        for info in topic.partitions.values():
            if info.leader == NO_LEADER:
                yield TopicPartition(topic.name, info.partition)
