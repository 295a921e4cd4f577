"""Reads the cluster once for all pages, and only while somebody looks.

A round has four steps, and each one shows on the pages at once: the metadata, the ends of all logs, the lag of all
groups, the controller. A step is a fixed number of requests for each broker. After a round the collector rests, so
that a large cluster does not keep it busy (`rest_after`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from ottla.clients.admin.brokers import active_controller, describe_log_dirs
from ottla.clients.admin.groups import ListedGroup
from ottla.clients.admin.values import LogDir
from ottla.clients.cluster.cluster import Cluster
from ottla.clients.cluster.leaders import LATEST_TIMESTAMP, list_offsets
from ottla.clients.cluster.metadata import NO_LEADER, Metadata
from ottla.console.rates import Rates
from ottla.errors import KafkaError
from ottla.exporter.poll import Poller
from ottla.monitoring.watch import Limits, Row, Watch
from ottla.types import BrokerId, Millis, TopicPartition

logger = logging.getLogger(__name__)

INTERVAL = 5.0
REST, LONGEST_REST = 9, 60.0
"""How many times as long as a round the collector rests after it, and for how many seconds at most."""
LINGER = 20.0
"""For how long a page without live updates counts as somebody who looks."""
PATIENCE = 0.2
"""How long a page waits for the first step of the first round."""
SIZES_FOR = 20.0
"""Seconds for which sizes are not read again: the answer names every replica."""
KEPT = 240
"""How many points of a history are kept."""
CONTROLLER_SECONDS = 3.0
TIMEOUT_MS: Millis = 10_000

Key = tuple[str, TopicPartition]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is known about the cluster. A part is None until it was read for the first time."""

    metadata: Metadata | None = None
    read_at: Millis = 0
    controller: BrokerId | None = None
    """The node that is the controller; None while it is unknown."""
    has_controller: bool = False
    """Whether the brokers were asked for the controller."""
    ends: Mapping[TopicPartition, int] | None = None
    rates: Mapping[TopicPartition, float] | None = None
    """Records per second by partition, from the growth of the logs; None until the ends were read twice."""
    rows: Mapping[Key, Row] | None = None
    """What each group has not read, by group and partition."""
    groups: Sequence[ListedGroup] | None = None
    """The groups of consumers with their states."""
    watched_since: Mapping[str, Millis] = field(default_factory=dict)
    """When the offsets of each group were read for the first time."""
    groups_failed: int = 0
    """Groups whose offsets could not be read."""
    problem: str | None = field(default=None)
    """Why the last round failed."""
    sizes: Mapping[TopicPartition, int] | None = None
    """Bytes on the disk of each partition's largest replica, read only for pages that show them."""
    sizes_problem: str | None = None
    """Why sizes are not known."""


class Collector:
    """Reads the cluster again and again while somebody looks.

    snapshot = await collector.current()
    """

    def __init__(self, cluster: Cluster, now: Callable[[], Millis], *, interval: float = INTERVAL) -> None:
        self._cluster = cluster
        self._now = now
        self._interval = interval
        self._rates = Rates()
        self._poller = Poller(cluster, now)
        self._watch = Watch(Limits())
        self._viewers = 0
        self._looked = float("-inf")
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._wake = asyncio.Event()
        self._closed = False
        self._sizes_task: asyncio.Task[None] | None = None
        self._sizes_at = float("-inf")
        self.snapshot = Snapshot()
        self.version = 0
        """Increases with each change of the snapshot."""
        self.throughput: deque[tuple[Millis, float]] = deque(maxlen=KEPT)
        """Records per second of the whole cluster over time."""

    # ── for pages ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def current(self) -> Snapshot:
        """What is known now.

        The first page, also after nobody has looked for a while, waits a moment for the metadata. The rest arrives as a
        live update.
        """
        version = self.version
        began = self.look()
        if began or (self.snapshot.metadata is None and self.snapshot.problem is None):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await self.changed(version)
        return self.snapshot

    def want_sizes(self) -> None:
        """A page shows sizes: read them if they are old. They arrive as a live update."""
        loop = asyncio.get_running_loop()
        some_are_missing = len(self.snapshot.sizes or ()) < len(self.snapshot.ends or ())
        due = self._sizes_at + (self._interval if some_are_missing else SIZES_FOR)
        if not self._closed and self._sizes_task is None and loop.time() >= due:
            self._sizes_task = loop.create_task(self._read_sizes())

    def look(self) -> bool:
        """Somebody looks: read the cluster for a while. Returns whether nobody has looked before."""
        loop = asyncio.get_running_loop()
        self._looked = loop.time()
        if self._closed or (self._task is not None and not self._task.done()):
            return False
        self._task = loop.create_task(self._run())
        return True

    @contextlib.contextmanager
    def viewer(self) -> Iterator[None]:
        """Somebody looks until the end of the block."""
        self._viewers += 1
        self.look()
        try:
            yield
        finally:
            self._viewers -= 1

    async def changed(self, since: int) -> int:
        """Wait until the version is another one than `since`."""
        while self.version == since and not self._closed:
            await self._changed.wait()
        return self.version

    @property
    def closed(self) -> bool:
        return self._closed

    def hurry(self) -> None:
        """Read again soon: an action changed the cluster."""
        self._wake.set()
        self.look()

    async def close(self) -> None:
        self._closed = True
        self._tell()
        tasks = [task for task in (self._task, self._sizes_task) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ── the rounds ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._viewers > 0 or loop.time() < self._looked + LINGER:
            began = loop.time()
            # An action during the round may come too late for it.
            self._wake.clear()
            failed = True
            try:
                await self._round()
                failed = False
            except KafkaError as error:
                self._set(problem=str(error))
            except Exception as error:
                logger.exception("cannot read the cluster")
                self._set(problem=f"unexpected {type(error).__name__}: {error}")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(rest_after(loop.time() - began, self._interval, failed=failed)):
                    await self._wake.wait()

    async def _round(self) -> None:
        metadata = await self._cluster.refresh(None)
        self._set(metadata=metadata, read_at=self._now(), problem=None)
        await self._read_ends(metadata)
        await self._read_lags(metadata)
        await self._read_controller()

    async def _read_ends(self, metadata: Metadata) -> None:
        wanted = {
            TopicPartition(topic.name, info.partition): LATEST_TIMESTAMP
            for topic in metadata.topics.values()
            for info in topic.partitions.values()
            if info.leader != NO_LEADER
        }
        found = await self._cluster.by_leader(wanted, partial(list_offsets, self._cluster), timeout_ms=TIMEOUT_MS)
        ends = {key: one.offset for key, one in found.items() if not isinstance(one, KafkaError)}
        now = self._now()
        rates = self._rates.observe(ends, now=now)
        if rates is not None:
            self.throughput.append((now, sum(rates.values())))
        self._set(ends=ends, rates=rates)

    async def _read_lags(self, metadata: Metadata) -> None:
        seen = await self._poller.poll(metadata)
        self._watch.observe(seen, self._poller.lags)
        before, rows = self.snapshot.watched_since, self._watch.rows
        since = {group: before.get(group, seen.now) for group in {group for group, _ in rows}}
        self._set(rows=rows, groups=self._poller.groups, groups_failed=self._poller.problems, watched_since=since)

    async def _read_controller(self) -> None:
        controller = None
        with contextlib.suppress(KafkaError, TimeoutError):
            async with asyncio.timeout(CONTROLLER_SECONDS):
                controller = await active_controller(self._cluster)
        self._set(controller=controller, has_controller=True)

    async def _read_sizes(self) -> None:
        try:
            answers = await describe_log_dirs(self._cluster, None)
            self._set(**_sizes(answers))
        except KafkaError as error:
            self._set(sizes_problem=str(error))
        finally:
            self._sizes_at = asyncio.get_running_loop().time()
            self._sizes_task = None

    def _set(self, **parts: object) -> None:
        self.snapshot = replace(self.snapshot, **parts)  # type: ignore[arg-type]
        self._tell()

    def _tell(self) -> None:
        self.version += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def rest_after(seconds: float, interval: float, *, failed: bool) -> float:
    """How long to rest after a round.

    One that failed has only waited for brokers that did not answer. They may be back at any moment.

    >>> [rest_after(seconds, 5.0, failed=False) for seconds in (0.1, 2.0, 20.0)], rest_after(20.0, 5.0, failed=True)
    ([5.0, 18.0, 60.0], 5.0)
    """
    return interval if failed else max(interval, min(REST * seconds, LONGEST_REST))


def _sizes(answers: Mapping[BrokerId, dict[str, LogDir] | KafkaError]) -> dict[str, object]:
    sizes: dict[TopicPartition, int] = {}
    problems = []
    for broker, found in answers.items():
        if isinstance(found, KafkaError):
            problems.append(f"broker {broker}: {found}")
            continue
        for directory in found.values():
            for key, replica in directory.replicas.items():
                sizes[key] = max(sizes.get(key, 0), replica.size)
    return {"sizes": sizes, "sizes_problem": "; ".join(problems) or None}
