"""Follow ``__consumer_offsets`` for rebalances: with their causes from ottla, as far as they show from Apache Kafka.

It begins at the present end, and each call reads what has come since, with few requests to each broker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ottla.clients.admin.offsets_topic import FETCH_BYTES, Entry, entries
from ottla.clients.cluster.cluster import Cluster
from ottla.clients.cluster.leaders import LATEST_TIMESTAMP, list_offsets
from ottla.clients.cluster.plain_fetch import fetch_plainly
from ottla.coordinator import records as r
from ottla.coordinator.history import UNDER_WAY
from ottla.errors import KafkaError, OffsetOutOfRange
from ottla.metadata.machine import CONSUMER_OFFSETS
from ottla.monitoring.derived import UNKNOWN_CAUSE, GroupView
from ottla.records import scan
from ottla.types import Millis, TopicPartition

FETCHES = 8
"""Fetches from each broker in one call; what is left is read by the next call."""
TIMEOUT_MS: Millis = 5_000


@dataclass(frozen=True, slots=True)
class Rebalance:
    """A rebalance of a group that is over."""

    group: str
    causes: tuple[str, ...]
    details: Mapping[str, Any]


class Tail:
    """Reads the new records of all partitions."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._positions: dict[TopicPartition, int] = {}
        self._views: dict[str, GroupView] = {}
        self._told: dict[str, int] = {}
        """The number of the last rebalance of a group in ottla's own records."""

    async def read(self) -> list[Rebalance]:
        """The rebalances since the last call. Raises KafkaError if the topic cannot be read."""
        info = self._cluster.metadata.topics.get(CONSUMER_OFFSETS)
        if info is None:
            return []
        await self._begin([key for key in info.topic_partitions if key not in self._positions])
        found: list[Entry] = []
        send = partial(fetch_plainly, self._cluster, most_bytes=FETCH_BYTES, wait_ms=0)
        for _ in range(FETCHES):
            before = dict(self._positions)
            answers = await self._cluster.by_leader(self._positions, send, timeout_ms=TIMEOUT_MS)
            for key, data in answers.items():
                found += self._taken(key, data)
            if before == self._positions:
                break
        return list(self._rebalances(found))

    async def _begin(self, partitions: list[TopicPartition]) -> None:
        if not partitions:
            return
        asked = dict.fromkeys(partitions, LATEST_TIMESTAMP)
        found = await self._cluster.by_leader(asked, partial(list_offsets, self._cluster), timeout_ms=TIMEOUT_MS)
        errors = [one for one in found.values() if isinstance(one, KafkaError)]
        if len(errors) == len(found):
            raise errors[0]
        self._positions |= {key: one.offset for key, one in found.items() if not isinstance(one, KafkaError)}

    def _taken(self, key: TopicPartition, data: bytes | KafkaError) -> Iterator[Entry]:
        if isinstance(data, OffsetOutOfRange):
            del self._positions[key]  # Compaction or a new topic: begin at the end again.
        if isinstance(data, KafkaError):
            return
        for at, header in scan(data, 0, len(data)).batches:
            yield from (
                one for one in entries(data, at, header, partition=key.partition) if one.offset >= self._positions[key]
            )
            self._positions[key] = max(self._positions[key], header.next_offset)

    def _rebalances(self, found: list[Entry]) -> Iterator[Rebalance]:
        with_history = {
            one.group_id
            for one in found
            if one.record is not None and isinstance(one.record.key, r.HistoryKey | r.OldHistoryKey)
        } | self._told.keys()
        for entry in found:
            group = entry.group_id
            if entry.record is None or group is None:
                continue
            if isinstance(entry.record.key, r.HistoryKey | r.OldHistoryKey):
                yield from self._recorded(group, entry.record.value)
            elif group not in with_history:
                derived = self._views.setdefault(group, GroupView()).feed(entry.record, entry.timestamp)
                if derived is not None:
                    details = {"generation": derived.generation, "members": derived.members, "is_derived": True}
                    yield Rebalance(group, derived.causes, {"group": group, **details})

    def _recorded(self, group: str, value: r.Value | None) -> Iterator[Rebalance]:
        if not isinstance(value, r.HistoryValue) or value.outcome == UNDER_WAY:
            return
        if value.number <= self._told.get(group, -1):
            return
        self._told[group] = value.number
        details = {
            "group": group,
            "generation": value.generation,
            "members": value.members,
            "took_ms": value.ended_at - value.started_at,
            "partitions_moved": value.partitions_moved,
            "is_derived": False,
        }
        yield Rebalance(group, tuple(one.kind for one in value.triggers) or (UNKNOWN_CAUSE,), details)
