"""The offsets topic, read over the wire: completely, once, and what it says about the rebalances of a group."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.unit.clients.fake_cluster import FakeCluster

from ottla.clients.admin import offsets_topic
from ottla.clients.admin.offsets_topic import partition_count, partition_of, read_entries, read_history
from ottla.clients.cluster.cluster import Cluster
from ottla.coordinator import records as r
from ottla.coordinator.serde import encode
from ottla.errors import CorruptMessage, UnknownTopicOrPartition
from ottla.metadata.machine import CONSUMER_OFFSETS
from ottla.records import Record, encode_batch
from ottla.types import TopicPartition

KEY = TopicPartition(CONSUMER_OFFSETS, 0)
GROUP = "billing"


@asynccontextmanager
async def running() -> AsyncIterator[tuple[FakeCluster, Cluster]]:
    quick = {"api_timeout_ms": 500, "retry_backoff_ms": 5}
    async with FakeCluster().running() as brokers, Cluster(brokers.bootstrap, **quick) as cluster:
        yield brokers, cluster


def write(brokers: FakeCluster, *records: r.CoordinatorRecord) -> None:
    """Append one batch to the only partition."""
    pairs = [encode(record) for record in records]
    brokers._append(KEY, encode_batch([Record(number, 0, *pair) for number, pair in enumerate(pairs)]))


def commit(offset: int, group: str = GROUP) -> r.CoordinatorRecord:
    return r.CoordinatorRecord(r.OffsetCommitKey(group, "t", 0), r.OffsetCommitValue(offset))


def rebalance(number: int, outcome: str = "stable", *, slot: int, group: str = GROUP) -> r.CoordinatorRecord:
    value = r.HistoryValue(
        number=number, generation=number + 1, outcome=outcome, protocol="range", started_at=0, joined_at=1,
        ended_at=2, members=1, leader="m", triggers=(), triggers_left_out=0, late=(), partitions_kept=0,
        partitions_moved=0, moves=(),
    )  # fmt: skip
    return r.CoordinatorRecord(r.HistoryKey(group, slot), value)


def generation(number: int) -> r.CoordinatorRecord:
    value = r.GroupMetadataValue("consumer", number, "range", "m", 0, ())
    return r.CoordinatorRecord(r.GroupMetadataKey(GROUP), value)


async def test_every_record_is_read_once_however_the_fetches_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets_topic, "FETCH_BYTES", 300)
    async with running() as (brokers, cluster):
        brokers.add_topic(CONSUMER_OFFSETS, [1])
        for number in range(0, 30, 3):
            write(brokers, *(commit(number + more) for more in range(3)))
        await partition_count(cluster)
        found = [entry async for entry in read_entries(cluster, 0)]
        assert [entry.offset for entry in found] == list(range(30))
        values = [entry.record.value for entry in found if entry.record is not None]
        assert [value.offset for value in values if isinstance(value, r.OffsetCommitValue)] == list(range(30))


async def test_reading_begins_at_the_log_start_inside_of_a_batch() -> None:
    async with running() as (brokers, cluster):
        brokers.add_topic(CONSUMER_OFFSETS, [0])
        write(brokers, commit(1), commit(2), commit(3))
        brokers.log_start[KEY] = 2
        assert [entry.offset async for entry in read_entries(cluster, 0)] == [2]


async def test_a_damaged_batch_is_an_error_and_not_an_end() -> None:
    async with running() as (brokers, cluster):
        brokers.add_topic(CONSUMER_OFFSETS, [0])
        write(brokers, commit(1))
        brokers.batches[KEY][0] = brokers.batches[KEY][0][:-1] + b"\xff"
        with pytest.raises(CorruptMessage, match="__consumer_offsets-0 cannot be read at offset 0"):
            assert [entry async for entry in read_entries(cluster, 0)]


async def test_a_cluster_without_groups_has_no_such_topic() -> None:
    async with running() as (_, cluster):
        with pytest.raises(UnknownTopicOrPartition):
            await partition_of(cluster, GROUP)


async def test_the_history_has_what_was_written_last_into_each_slot() -> None:
    async with running() as (brokers, cluster):
        brokers.add_topic(CONSUMER_OFFSETS, [0])
        write(brokers, rebalance(0, slot=0), generation(1), rebalance(9, slot=2, group="another"))
        write(brokers, rebalance(1, slot=1), generation(2), commit(5))
        write(brokers, rebalance(2, slot=0), generation(3))
        history = await read_history(cluster, GROUP)
        assert [one.number for one in history.rebalances] == [1, 2]
        assert history.generation == 3
        write(brokers, *(r.CoordinatorRecord(r.HistoryKey(GROUP, slot), None) for slot in (0, 1)))
        assert (await read_history(cluster, GROUP)).rebalances == ()


async def test_a_rebalance_under_way_is_apart_until_it_is_over() -> None:
    async with running() as (brokers, cluster):
        brokers.add_topic(CONSUMER_OFFSETS, [0])
        write(brokers, rebalance(0, slot=0), rebalance(1, "under way", slot=1))
        history = await read_history(cluster, GROUP)
        assert [one.number for one in history.rebalances] == [0]
        assert history.under_way is not None
        assert history.under_way.number == 1
        write(brokers, rebalance(1, slot=1))
        history = await read_history(cluster, GROUP)
        assert ([one.number for one in history.rebalances], history.under_way) == ([0, 1], None)


async def test_a_broker_that_writes_no_history_still_tells_the_generation() -> None:
    async with running() as (brokers, cluster):
        brokers.add_topic(CONSUMER_OFFSETS, [0])
        epoch = r.CoordinatorRecord(r.ConsumerGroupMetadataKey(GROUP), r.ConsumerGroupMetadataValue(4))
        write(brokers, epoch)
        history = await read_history(cluster, GROUP)
        assert (history.rebalances, history.generation) == ((), 4)
