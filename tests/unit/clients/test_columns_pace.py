"""How far encoding a table runs ahead of sending it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from ottla.clients.columns import _BATCHES_AHEAD, _MOMENT, ColumnsFuture
from ottla.clients.producer.batches import BatchWaiting
from ottla.producing.batch import Batch
from ottla.producing.values import EncodedBatch
from ottla.records.builder import RecordFuture
from ottla.types import TopicPartition

PARTITION = TopicPartition("topic", 0)


def sent(future: ColumnsFuture, count: int) -> list[Batch]:
    """Batches of a table that were queued, and are not acknowledged yet."""
    batches = []
    for _ in range(count):
        payload = EncodedBatch(PARTITION, bytearray(200), 3, 0, 0)
        batch = Batch(PARTITION, payload.payload, memory=200, now=0, waiting=BatchWaiting(lambda: None, lambda: None))
        batch.fill(None, 3, 0, 0)
        future.add(payload, RecordFuture(batch, 0, 0, -1, -1))
        batches.append(batch)
    return batches


def paced(future: ColumnsFuture, *, in_coroutine: bool) -> float:
    """How long the next batch was delayed."""
    before = time.monotonic()
    if in_coroutine:
        asyncio.run(future.pace_async())
    else:
        future.pace()
    return time.monotonic() - before


@pytest.mark.parametrize("in_coroutine", [False, True])
def test_few_batches_are_not_held_back_and_many_for_a_moment(in_coroutine: bool) -> None:
    future = ColumnsFuture("topic")
    batches = sent(future, _BATCHES_AHEAD - 1)
    assert future._behind() is None
    batches += sent(future, 1)
    behind: Any = future._behind()
    assert behind.batch is batches[0]
    # Without acknowledgements it continues nevertheless.
    assert paced(future, in_coroutine=in_coroutine) >= _MOMENT
    batches[0].finish(10, -1, None)
    assert future._behind() is None
    batches += sent(future, 1)
    behind = future._behind()
    assert behind.batch is batches[1]


@pytest.mark.parametrize("in_coroutine", [False, True])
def test_only_the_future_reports_a_batch_that_fails_during_a_pause(in_coroutine: bool) -> None:
    future = ColumnsFuture("topic")
    batches = sent(future, _BATCHES_AHEAD)
    error = RuntimeError("refused")
    behind: Any = future._behind()
    behind.batch.watch(behind, lambda _: None)
    for batch in batches:
        for _, watcher in batch.finish(-1, -1, error)[1]:
            watcher(None)
    paced(future, in_coroutine=in_coroutine)
    assert future.exception() is error


async def test_in_a_coroutine_a_failure_ends_the_wait() -> None:
    future = ColumnsFuture("topic")
    batches = sent(future, _BATCHES_AHEAD)
    waiting = asyncio.create_task(future.pace_async())
    await asyncio.sleep(0)
    for _, watcher in batches[0].finish(-1, -1, RuntimeError("refused"))[1]:
        watcher(None)
    await waiting
