"""The exporter: polls a cluster, serves the metrics of its groups, and sends events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

from ottla.clients.cluster.cluster import Cluster
from ottla.errors import KafkaError
from ottla.exporter.delivery import Delivery
from ottla.exporter.poll import Poller
from ottla.exporter.settings import Settings
from ottla.exporter.tail import Tail
from ottla.metrics.registry import Labels, Number, Registry
from ottla.metrics.server import MetricsServer
from ottla.monitoring.alarms import Event
from ottla.monitoring.watch import Row, Watch
from ottla.types import Millis, TopicPartition

logger = logging.getLogger(__name__)

MISSED_POLLS = 3
"""After so many polls in a row that failed, figures are left out: old ones would look like a cluster at rest."""


class Exporter:
    """Watches one cluster.

    exporter = Exporter(cluster, Settings(), delivery, SystemClock().now)
    await exporter.server.start()
    await exporter.run()
    """

    def __init__(self, cluster: Cluster, settings: Settings, delivery: Delivery, now: Callable[[], Millis]) -> None:
        self._settings = settings
        self._now = now
        self._delivery = delivery
        self._poller = Poller(cluster, now, dead_letters=settings.dead_letters)
        self._tail = Tail(cluster)
        self._watch = Watch(settings.limits)
        self._failed = MISSED_POLLS
        self._took = 0.0
        self._reads_tail = True
        self.registry = Registry()
        self._polls = self.registry.counter("ottla_exporter_polls_total", "Polls of the cluster that succeeded.")
        self._polls_failed = self.registry.counter("ottla_exporter_polls_failed_total", "Polls that failed.")
        self._register()
        host, port = settings.address
        # Thousands of groups are megabytes of text.
        self.server = MetricsServer(self.registry.render, host, port, problem=self._problem, timeout=30.0)

    async def run(self) -> None:
        """Poll for ever, every `interval` seconds."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            await self.poll()
            self._took = loop.time() - began
            await asyncio.sleep(max(self._settings.interval - self._took, 1.0))

    async def poll(self) -> None:
        """Poll once; a cluster that cannot be reached is logged and counted."""
        try:
            seen = await self._poller.poll()
        except KafkaError as error:
            self._failed += 1
            self._polls_failed.value += 1
            logger.warning("cannot poll the cluster: %s", error)
            return
        self._failed = 0
        self._polls.value += 1
        for event in [*self._watch.observe(seen, self._poller.lags), *await self._rebalances()]:
            self._delivery.put(event)

    async def _rebalances(self) -> list[Event]:
        try:
            found = await self._tail.read()
        except KafkaError as error:
            if self._reads_tail:
                logger.warning("cannot read __consumer_offsets, so rebalances are unknown: %s", error)
            self._reads_tail = False
            return []
        self._reads_tail = True
        now = self._now()
        told = (self._watch.rebalanced(one.group, one.causes, one.details, now=now) for one in found)
        return [event for events in told for event in events]

    def _problem(self) -> str | None:
        return None if self._failed < MISSED_POLLS else "the cluster could not be polled; see the log"

    # ── metrics ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _register(self) -> None:
        def family(name: str, text: str, value: Callable[[Row], Number | None], kind: str = "gauge") -> None:
            self.registry.family(name, text, lambda: self._values(value), kind)

        family("ottla_group_lag_records", "Records that the group has not read.", lambda row: row.lag)
        family(
            "ottla_group_lag_seconds",
            "Age of the oldest record that the group has not read; 0 if it has read all.",
            lambda row: row.seconds,
        )
        family("ottla_group_committed_offset", "The committed offset.", lambda row: row.position)
        family(
            "ottla_group_retention_used_ratio",
            "Age of the oldest unread record as a share of the retention time; from 1 on it may be deleted.",
            lambda row: row.retention_share,
        )
        family(
            "ottla_group_records_lost_total",
            "Offsets that were deleted before the group read them.",
            lambda row: row.lost,
            "counter",
        )
        family(
            "ottla_group_without_consumption_seconds",
            "For how long records have waited while the committed offset stayed the same.",
            lambda row: row.stalled_seconds(now=self._now()),
        )
        self.registry.family(
            "ottla_group_rebalances_total",
            "Rebalances by cause since the exporter started; one with two causes counts for both.",
            lambda: [({"group": group, "cause": cause}, n) for (group, cause), n in self._watch.rebalances.items()],
            "counter",
        )
        self.registry.gauge(
            "ottla_offline_partitions", "Partitions without a leader.", lambda: len(self._watch.offline)
        )
        self.registry.gauge("ottla_exporter_poll_seconds", "How long the last poll took.", lambda: self._took)
        self.registry.gauge(
            "ottla_exporter_groups_failed",
            "Groups whose offsets could not be fetched in the last poll.",
            lambda: self._poller.problems,
        )
        self.registry.gauge(
            "ottla_exporter_reads_rebalances",
            "1 if __consumer_offsets can be read, so that rebalances are counted.",
            lambda: int(self._reads_tail),
        )
        self.registry.family("ottla_exporter_events_total", "Events by place and result.", self._events, "counter")
        self.registry.family(
            "ottla_exporter_events_waiting",
            "Events that a place has not taken yet.",
            lambda: [({"place": one.name}, one.waiting) for one in self._delivery.outlets],
        )

    def _values(self, value: Callable[[Row], Number | None]) -> Iterator[tuple[Labels, Number]]:
        if self._failed >= MISSED_POLLS:
            return
        for (group, key), row in self._watch.rows.items():
            number = value(row)
            if number is not None:
                yield _labels(group, key), number

    def _events(self) -> Iterator[tuple[Labels, Number]]:
        for one in self._delivery.outlets:
            for result, count in (("sent", one.sent), ("dropped", one.dropped), ("failed", one.failed)):
                yield {"place": one.name, "result": result}, count


def _labels(group: str, key: TopicPartition) -> Labels:
    return {"group": group, "topic": key.topic, "partition": str(key.partition)}
