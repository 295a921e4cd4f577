"""Measure lag in seconds: a limited number of ListOffsets requests, and of looks into logs.

    lags = Lags()
    bounds = await log_bounds(cluster, positions)
    await measure(cluster, lags, positions, bounds, rounds=ROUNDS, looks=LOOKS, now=clock.now)
    lags.seconds(TopicPartition("orders", 0), 17, now=clock.now())

A round is one request for each broker. How lag follows from the answers is in `ottla.monitoring.lag`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from ottla.clients.cluster.cluster import Cluster
from ottla.clients.cluster.leaders import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, FoundOffset, list_offsets
from ottla.clients.cluster.metadata import NO_LEADER
from ottla.clients.cluster.plain_fetch import fetch_plainly
from ottla.errors import KafkaError
from ottla.monitoring.lag import Lags, Look, Positions
from ottla.protocol.apis import ApiKey
from ottla.records import CorruptBatch, decode_batch, scan
from ottla.types import Millis, TopicPartition

ROUNDS = 24
"""Enough for any partition that is measured once."""
LOOKS = 200
TIMEOUT_MS: Millis = 5_000
FIRST_WITH_MAX_TIMESTAMP = 7
FETCHES_OF_A_LOOK = 16
LOOKS_AT_ONCE = 8

Bounds = dict[TopicPartition, tuple[int, int]]


async def log_bounds(cluster: Cluster, partitions: Iterable[TopicPartition]) -> Bounds:
    """The start and the end of each log, without partitions that are gone or have no leader: two requests a broker."""
    infos = {key: cluster.metadata.partition(key) for key in partitions}
    known = [key for key, info in infos.items() if info is not None and info.leader != NO_LEADER]
    ends = await _ask(cluster, dict.fromkeys(known, LATEST_TIMESTAMP))
    starts = await _ask(cluster, dict.fromkeys(ends, EARLIEST_TIMESTAMP))
    return {key: (start.offset, max(ends[key].offset, start.offset)) for key, start in starts.items()}


async def measure(
    cluster: Cluster,
    lags: Lags,
    positions: Positions,
    bounds: Bounds,
    *,
    rounds: int,
    looks: int,
    now: Callable[[], Millis],
) -> int:
    """Ask until all lags are known well enough, or the limits are reached. Returns the number of rounds."""
    if (await cluster.any_connection()).version_of(ApiKey.LIST_OFFSETS) < FIRST_WITH_MAX_TIMESTAMP:
        lags.max_timestamp = False
    lags.advance(bounds, positions, now=(moment := now()))
    used = 0
    while used < rounds and (asked := lags.questions(positions, now=moment, attempt=used)):
        used += 1
        answers = await _ask(cluster, asked)
        for key, answer in answers.items():
            lags.answered(key, asked[key], answer.offset, answer.timestamp, now=moment)
        if not answers:
            break
    while looks > 0 and (wanted := lags.looks(positions, now=moment, at_most=looks)):
        if not await _look(cluster, lags, wanted, bounds, moment):
            break
        looks -= len(wanted)
    return used


async def _ask(cluster: Cluster, asked: Mapping[TopicPartition, Millis]) -> dict[TopicPartition, FoundOffset]:
    found = await cluster.by_leader(asked, partial(list_offsets, cluster), timeout_ms=TIMEOUT_MS)
    return {key: one for key, one in found.items() if not isinstance(one, KafkaError)}


# ── looks ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _look(cluster: Cluster, lags: Lags, looks: Iterable[Look], bounds: Bounds, now: Millis) -> int:
    """Read the logs at these positions; returns how many told something."""
    waiting, told = list(looks), list[Look]()

    async def work() -> None:
        while waiting:
            look = waiting.pop()
            found = await _first_record(cluster, look, *bounds[look.key])
            if found is not None:
                lags.looked(look, *found, now=now)
                told.append(look)

    await asyncio.gather(*(work() for _ in range(LOOKS_AT_ONCE)))
    return len(told)


async def _first_record(cluster: Cluster, look: Look, start: int, end: int) -> tuple[int | None, Millis] | None:
    """The first record at or after the position, and its time; None if it was not found with a few fetches."""
    position = max(look.position, start)
    for _ in range(FETCHES_OF_A_LOOK):
        if position >= end:
            return None, -1
        send = partial(fetch_plainly, cluster, most_bytes=1, wait_ms=0)
        data = (await cluster.by_leader({look.key: position}, send, timeout_ms=TIMEOUT_MS))[look.key]
        if isinstance(data, KafkaError):
            return None
        batches = scan(data, 0, len(data)).batches
        if not batches:
            return None
        for at, header in batches:
            try:
                records = () if header.is_control else decode_batch(data, at)
            except CorruptBatch:
                return None
            for record in records:
                if position <= record.offset < end:
                    return record.offset, record.timestamp
        position = max(position + 1, batches[-1][1].next_offset)
    return None
