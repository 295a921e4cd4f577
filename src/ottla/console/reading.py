"""Read records for a page: from some offsets on or before them, with limits, so that a page comes soon.

    bounds = await find_bounds(cluster, "orders", [0, 1], READ_COMMITTED)
    page = await read_older(cluster, Scan("orders", limit=50), bounds, bounds.ends)
    page.rows, page.before

A page stops at its number of rows, or after so many records, bytes or seconds, and says where to go on. Values are kept
up to a length, so the memory for a page has a limit, too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from ottla.clients.cluster.cluster import Cluster
from ottla.clients.cluster.leaders import (
    EARLIEST_TIMESTAMP,
    ISOLATION_LEVELS,
    LATEST_TIMESTAMP,
    READ_UNCOMMITTED,
    FoundOffset,
    list_offsets,
    with_partition,
)
from ottla.clients.cluster.metadata import NO_LEADER, Metadata
from ottla.clients.cluster.plain_fetch import Fetched, fetch_batches
from ottla.console.views.groups import number_ranges
from ottla.console.views.records import Row, Search, row_of, with_outcomes
from ottla.consuming.batches import marker_of, readable
from ottla.errors import CorruptMessage, KafkaError, OffsetOutOfRange
from ottla.records import BatchHeader, CorruptBatch, decode_batch, scan
from ottla.types import Millis, TopicPartition

TIMEOUT_MS: Millis = 10_000
FETCH_BYTES = 4 * 1024 * 1024
LEAST_FETCH_BYTES = 64 * 1024
FIRST_WINDOW = 1_000
"""How many records before the end are read first, over all partitions."""
Offsets = dict[int, int]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one page may cost."""

    records: int = 100_000
    bytes: int = 64 * 1024 * 1024
    seconds: float = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What to read."""

    topic: str
    isolation: str = "read_uncommitted"
    search: Search | None = None
    limit: int = 50
    limits: Limits = field(default_factory=Limits)
    clock: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True)
class Bounds:
    """The first offset and the end of each partition."""

    starts: Offsets
    ends: Offsets

    @property
    def records(self) -> int:
        """How many there are at most: compaction and transactions leave gaps."""
        return sum(self.ends[key] - start for key, start in self.starts.items())


@dataclass(slots=True)
class Page:
    """The rows of a page in order of time, and how far it came."""

    rows: list[Row] = field(default_factory=list)
    at: Offsets = field(default_factory=dict)
    """Newer records begin here."""
    before: Offsets = field(default_factory=dict)
    """Older records are before these."""
    records: int = 0
    """How many were looked at."""
    bytes: int = 0
    seconds: float = 0.0
    stopped_by: str | None = None
    """The limit that was reached: records, bytes or seconds."""
    problems: dict[int, str] = field(default_factory=dict)
    """Partitions that could not be read, and why."""


def with_leaders(metadata: Metadata, topic: str, partitions: Iterable[int]) -> tuple[list[int], list[int]]:
    """The partitions that can be read now, and those that cannot, because they have no leader."""
    there, away = list[int](), list[int]()
    for one in partitions:
        info = metadata.partition(TopicPartition(topic, one))
        (away if info is not None and info.leader == NO_LEADER else there).append(one)
    return there, away


def no_leaders(partitions: Sequence[int]) -> str:
    """
    >>> no_leaders([2]), no_leaders([2, 5, 6, 7])[:27]
    ('partition 2 has no leader now: check that its brokers run', 'partitions 2,5-7 have no le')
    """
    if len(partitions) == 1:
        return f"partition {partitions[0]} has no leader now: check that its brokers run"
    return f"partitions {number_ranges(partitions)} have no leader now: check that their brokers run"


async def find_bounds(cluster: Cluster, topic: str, partitions: Iterable[int], isolation: str) -> Bounds:
    """Ask for the first offsets and the ends; with read_committed the end is before the first open transaction."""
    level = ISOLATION_LEVELS[isolation]
    keys = [TopicPartition(topic, one) for one in partitions]
    first, last = await asyncio.gather(
        _ask(cluster, dict.fromkeys(keys, EARLIEST_TIMESTAMP), READ_UNCOMMITTED),
        _ask(cluster, dict.fromkeys(keys, LATEST_TIMESTAMP), level),
    )
    starts = {key.partition: one.offset for key, one in first.items()}
    return Bounds(starts, {key.partition: max(one.offset, starts[key.partition]) for key, one in last.items()})


async def offsets_at(cluster: Cluster, topic: str, bounds: Bounds, at: Millis) -> Offsets:
    """The first offset at or after a time in each partition, or its end."""
    found = await _ask(cluster, {TopicPartition(topic, one): at for one in bounds.ends}, READ_UNCOMMITTED)
    ends = bounds.ends
    return {key.partition: one.offset if one.offset >= 0 else ends[key.partition] for key, one in found.items()}


async def _ask(
    cluster: Cluster, asked: Mapping[TopicPartition, Millis], isolation: int
) -> dict[TopicPartition, FoundOffset]:
    send = partial(list_offsets, cluster, isolation_level=isolation)
    found = await cluster.by_leader(asked, send, timeout_ms=TIMEOUT_MS)
    return {key: _result(key, one) for key, one in found.items()}


def _result(key: TopicPartition, outcome: FoundOffset | KafkaError) -> FoundOffset:
    if isinstance(outcome, KafkaError):
        raise with_partition(outcome, key)
    return outcome


# ── pages ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def read_newer(cluster: Cluster, task: Task, bounds: Bounds, start: Offsets) -> Page:
    """The oldest rows from `start` on."""
    begun = task.clock()
    positions = _within(bounds, start)
    reader = _Reader(cluster, task, begun)
    found = await reader.read(dict(positions), bounds.ends, most=task.limit)
    taken = _by_time(with_outcomes(found.rows))[: task.limit]
    last = {row.partition: row.offset for row in taken}
    first_left = _firsts(row for row in found.rows if row.offset > last.get(row.partition, -1))
    at = {one: first_left.get(one, reader.reached.get(one, position)) for one, position in positions.items()}
    return reader.page(taken, at, positions)


async def read_older(cluster: Cluster, task: Task, bounds: Bounds, before: Offsets) -> Page:
    """The newest rows before some offsets. It reads windows that become larger until it has enough."""
    reader = _Reader(cluster, task, task.clock())
    top = _within(bounds, before)
    end, rows, size = dict(top), list[Row](), max(1, FIRST_WINDOW // max(len(top), 1))
    size = min(size, task.limit) if task.search is None else size
    while len(rows) < task.limit and any(end[one] > bounds.starts[one] for one in end):
        window = {one: max(bounds.starts[one], offset - size) for one, offset in end.items()}
        is_first = end == top
        found = await reader.read(dict(window), end, is_first=is_first)
        if not found.complete and not is_first:
            break  # What is missing is at the end of the window: the next page begins there.
        rows += found.rows
        end = window
        size *= 4
        if reader.is_over():
            break
    ordered = _by_time(with_outcomes(rows))
    taken, left = ordered[-task.limit :], ordered[: -task.limit]
    if left:
        firsts = _firsts(taken)
        # A partition without rows here goes on before those that were left out.
        lasts = {row.partition: row.offset + 1 for row in _by_offset(left)}
        end = {one: firsts.get(one, lasts.get(one, offset)) for one, offset in end.items()}
    return reader.page(taken, top, end)


def _within(bounds: Bounds, offsets: Offsets) -> Offsets:
    """Offsets of the partitions that exist, moved into their bounds. Partitions that are not named keep their end."""
    return {one: min(max(offsets.get(one, end), bounds.starts[one]), end) for one, end in bounds.ends.items()}


def _by_time(rows: Iterable[Row]) -> list[Row]:
    """In order of time, but never against the order of offsets: the largest time so far counts."""
    latest: Offsets = {}
    keyed = []
    for row in _by_offset(rows):
        latest[row.partition] = max(latest.get(row.partition, row.timestamp), row.timestamp)
        keyed.append((latest[row.partition], row.partition, row.offset, row))
    return [row for *_, row in sorted(keyed, key=lambda one: one[:3])]


def _by_offset(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.partition, row.offset))


def _firsts(rows: Iterable[Row]) -> Offsets:
    found: Offsets = {}
    for row in rows:
        found[row.partition] = min(row.offset, found.get(row.partition, row.offset))
    return found


@dataclass(slots=True)
class _Found:
    rows: list[Row] = field(default_factory=list)
    complete: bool = True
    """Whether all offsets that were asked for were looked at."""


class _Reader:
    """Fetches until it has enough, and counts what that costs."""

    def __init__(self, cluster: Cluster, task: Task, begun: float) -> None:
        self._cluster = cluster
        self._task = task
        self._begun = begun
        self._page = Page()
        self.reached: Offsets = {}

    def page(self, rows: list[Row], at: Offsets, before: Offsets) -> Page:
        page = self._page
        page.rows, page.at, page.before = rows, at, before
        page.seconds = self._task.clock() - self._begun
        return page

    def is_over(self) -> bool:
        """Whether a limit is reached."""
        limits, page = self._task.limits, self._page
        if page.records >= limits.records:
            page.stopped_by = "records"
        elif page.bytes >= limits.bytes:
            page.stopped_by = "bytes"
        elif self._task.clock() - self._begun >= limits.seconds:
            page.stopped_by = "seconds"
        return page.stopped_by is not None

    async def read(
        self, positions: Offsets, ends: Offsets, *, most: int | None = None, is_first: bool = False
    ) -> _Found:
        """Read from positions to ends. With `most`, a partition stops when it has so many rows."""
        found, counts = _Found(), dict.fromkeys(positions, 0)
        self.reached = positions
        open_ = [one for one in positions if positions[one] < ends[one] and one not in self._page.problems]
        while open_:
            moved = await self._round(positions, ends, open_, found, counts)
            open_ = [one for one in open_ if positions[one] < ends[one] and one not in self._page.problems]
            open_ = [one for one in open_ if most is None or counts[one] < most]
            if not moved or (open_ and not is_first and self.is_over()):
                found.complete = not open_
                break
        return found

    async def _round(self, positions: Offsets, ends: Offsets, open_: list[int], found: _Found, counts: Offsets) -> bool:
        task = self._task
        send = partial(
            fetch_batches,
            self._cluster,
            most_bytes=FETCH_BYTES,
            most_of_each=max(LEAST_FETCH_BYTES, FETCH_BYTES // len(open_)),
            wait_ms=100,
            isolation=ISOLATION_LEVELS[task.isolation],
        )
        asked = {TopicPartition(task.topic, one): positions[one] for one in open_}
        answers = await self._cluster.by_leader(asked, send, timeout_ms=TIMEOUT_MS)
        moved = False
        for key, answer in answers.items():
            one = key.partition
            if isinstance(answer, KafkaError):
                moved = True
                self._failed(one, positions, answer)
                continue
            self._page.bytes += len(answer.data)
            try:
                rows, looked, after = await asyncio.to_thread(
                    _decoded, answer, one, positions[one], ends[one], task.search
                )
            except CorruptMessage as error:
                self._failed(one, positions, error)
                continue
            moved = moved or after > positions[one]
            positions[one] = after
            self._page.records += looked
            found.rows += rows
            counts[one] += len(rows)
        return moved

    def _failed(self, partition: int, positions: Offsets, error: KafkaError) -> None:
        why = "the records are gone meanwhile" if isinstance(error, OffsetOutOfRange) else str(error)
        self._page.problems[partition] = f"partition {partition} at offset {positions[partition]}: {why}"


def _decoded(
    answer: Fetched, partition: int, position: int, end: int, search: Search | None
) -> tuple[list[Row], int, int]:
    """The rows that match, how many records were looked at, and the offset after them."""
    data = answer.data
    if not data:
        return [], 0, position
    if answer.aborted is None:
        seen = scan(data, 0, len(data))
        batches, problem = seen.batches, seen.problem
        after = batches[-1][1].next_offset if batches else None
    else:
        known = readable(data, answer.aborted, check_crcs=True)
        batches, after, problem = known.batches, known.next_offset, known.problem
    if after is None:
        if problem is None:
            return [], 0, position
        raise CorruptMessage(f"the batch cannot be read: {problem}")
    rows: list[Row] = []
    looked = 0
    for at, header in batches:
        found, count = _rows(data, at, header, partition, position, end, search)
        rows += found
        looked += count
    return rows, looked, min(max(after, position + 1), end)


def _rows(
    data: bytes, at: int, header: BatchHeader, partition: int, position: int, end: int, search: Search | None
) -> tuple[list[Row], int]:
    try:
        records = [one for one in decode_batch(data, at) if position <= one.offset < end]
    except CorruptBatch as error:
        raise CorruptMessage(f"the batch at offset {header.base_offset} cannot be read: {error.reason}") from None
    if header.is_control and search is not None:
        return [], len(records)
    wanted = records if search is None else [one for one in records if search.matches(one)]
    rows = [
        row_of(
            one,
            partition=partition,
            is_append_time=header.is_log_append_time,
            producer_id=header.producer_id,
            is_transactional=header.is_transactional,
        )
        for one in wanted
    ]
    if header.is_control:
        rows = [row._replace(marker=marker_of(row.key), key=None, value=None, value_size=-1) for row in rows]
    return rows, len(records)


async def read_one(cluster: Cluster, topic: str, partition: int, offset: int) -> tuple[Row, bytes | None] | None:
    """One record with its whole value; None if there is none at this offset."""
    key = TopicPartition(topic, partition)
    send = partial(fetch_batches, cluster, most_bytes=LEAST_FETCH_BYTES, wait_ms=100)
    answer = (await cluster.by_leader({key: offset}, send, timeout_ms=TIMEOUT_MS))[key]
    if isinstance(answer, OffsetOutOfRange):
        return None
    if isinstance(answer, KafkaError):
        raise with_partition(answer, key)
    rows, _, _ = _decoded(answer, partition, offset, offset + 1, None)
    if not rows:
        return None
    return rows[0], _value(answer.data, offset) if rows[0].marker is None else None


def _value(data: bytes, offset: int) -> bytes | None:
    for at, header in scan(data, 0, len(data)).batches:
        if header.base_offset <= offset <= header.last_offset:
            return next((one.value for one in decode_batch(data, at) if one.offset == offset), None)
    return None
