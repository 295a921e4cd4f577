"""The consumer in a cluster whose leaders move, whose connections break, and whose batches are cut off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.unit.clients.fake_cluster import HANG_UP, FakeCluster

from ottla.clients.consumer.asynchronous import AsyncConsumer
from ottla.consuming.values import OffsetAndMetadata
from ottla.errors import NotLeaderOrFollower, OffsetOutOfRange, TopicAuthorizationFailed
from ottla.protocol.apis import ApiKey
from ottla.types import TopicPartition


@asynccontextmanager
async def running(
    newest: dict[int, int] | None = None, **config: Any
) -> AsyncIterator[tuple[FakeCluster, AsyncConsumer]]:
    async with FakeCluster(newest=newest).running() as cluster:
        servers = [f"{host}:{port}" for host, port in cluster.bootstrap]
        settings = {"auto_offset_reset": "earliest", "retry_backoff_ms": 5, "fetch_max_wait_ms": 20, **config}
        async with AsyncConsumer(bootstrap_servers=servers, **settings) as consumer:
            yield cluster, consumer


async def read(consumer: AsyncConsumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    async with asyncio.timeout(20):
        while len(found) < count:
            found += [record.value for record in await consumer.poll(1.0)]
    return found


async def test_records_come_once_from_the_position_on_even_in_the_middle_of_a_batch() -> None:
    async with running() as (cluster, consumer):
        (key,) = cluster.add_topic("t", [0])
        cluster.write(key, b"0", b"1", b"2")
        cluster.write(key, b"3", b"4")
        await consumer.assign([key])
        await consumer.seek(key, 1)
        assert await read(consumer, 4) == [b"1", b"2", b"3", b"4"]
        assert await consumer.position(key) == 5
        assert await consumer.poll(0.05) == []
        cluster.write(key, b"5")
        assert await read(consumer, 1) == [b"5"]


@pytest.mark.parametrize("size", [1, 100, 1000])
async def test_batches_that_are_cut_off_come_with_the_next_fetch(size: int) -> None:
    async with running(max_partition_fetch_bytes=size) as (cluster, consumer):
        (key,) = cluster.add_topic("t", [0])
        for number in range(20):
            cluster.write(key, b"%d" % number, b"x" * 50)
        await consumer.assign([key])
        assert (await read(consumer, 40))[::2] == [b"%d" % number for number in range(20)]


@pytest.mark.parametrize("failure", [HANG_UP, NotLeaderOrFollower.code])
async def test_broken_connections_and_moving_leaders(failure: int | str) -> None:
    async with running() as (cluster, consumer):
        (key, other) = cluster.add_topic("t", [0, 1])
        cluster.write(key, b"a")
        cluster.write(other, b"b")
        cluster.fail(ApiKey.FETCH, key, failure, failure)
        await consumer.assign([key, other])
        assert sorted(await read(consumer, 2)) == [b"a", b"b"]
        cluster.leaders[key] = 1
        cluster.write(key, b"c")
        assert await read(consumer, 1) == [b"c"]


async def test_a_topic_that_is_deleted_and_made_again_is_read_again() -> None:
    async with running() as (cluster, consumer):
        (key,) = cluster.add_topic("t", [0])
        cluster.write(key, b"a")
        await consumer.assign([key])
        assert await read(consumer, 1) == [b"a"]
        cluster.leaders.clear()
        assert await consumer.poll(0.1) == []
        cluster.leaders[key] = 0
        cluster.write(key, b"b")
        assert await read(consumer, 1) == [b"b"]


async def test_an_offset_that_is_gone_is_an_error_that_names_it() -> None:
    async with running(auto_offset_reset="none") as (cluster, consumer):
        (key,) = cluster.add_topic("t", [0])
        await consumer.assign([key])
        await consumer.seek(key, 7)
        with pytest.raises(OffsetOutOfRange, match="t-0 has no offset 7"):
            await consumer.poll(5)


async def test_what_is_not_allowed_is_raised_and_can_be_tried_again() -> None:
    async with running() as (cluster, consumer):
        (key,) = cluster.add_topic("t", [0])
        cluster.write(key, b"a")
        cluster.fail(ApiKey.FETCH, key, TopicAuthorizationFailed.code)
        await consumer.assign([key])
        with pytest.raises(TopicAuthorizationFailed, match="t-0"):
            await consumer.poll(5)
        assert await read(consumer, 1) == [b"a"]


async def test_a_cluster_without_topic_ids_is_spoken_to_by_name() -> None:
    async with running(newest={ApiKey.METADATA: 9}) as (cluster, consumer):
        (key,) = cluster.add_topic("t", [0])
        cluster.write(key, b"a")
        await consumer.assign([key])
        assert await read(consumer, 1) == [b"a"]


async def test_damaged_bytes_are_reported_and_can_be_skipped() -> None:
    async with running() as (cluster, consumer):
        (key,) = cluster.add_topic("t", [0])
        cluster.write(key, b"good")
        cluster.write(key, b"bad")
        cluster.write(key, b"fine")
        batch = bytearray(cluster.batches[key][1])
        batch[-3] ^= 0xFF
        cluster.batches[key][1] = bytes(batch)
        await consumer.assign([key])
        assert await read(consumer, 1) == [b"good"]
        for _ in range(2):
            with pytest.raises(Exception, match="t-0 at offset 1: crc"):
                await read(consumer, 1)
        await consumer.seek(key, 2)
        assert await read(consumer, 1) == [b"fine"]


async def test_metadata_of_a_missing_topic_is_asked_for_until_it_is_there(caplog: pytest.LogCaptureFixture) -> None:
    async with running(metadata_max_age_ms=50) as (cluster, consumer):
        key = TopicPartition("late", 0)
        await consumer.assign([key])
        assert await consumer.poll(0.05) == []
        assert "topic late does not exist" in caplog.text
        cluster.add_topic("late", [0])
        cluster.write(key, b"x")
        assert await read(consumer, 1) == [b"x"]


async def test_a_position_is_confirmed_by_a_leader_that_is_replaced_meanwhile() -> None:
    async with running() as (cluster, consumer):
        (key,) = cluster.add_topic("t", [0])
        cluster.write(key, b"0", b"1")
        cluster.epochs[key] = 1
        await consumer.assign([key])
        await consumer.position(key)
        # The consumer does not know the next leader yet, and the old one does not answer.
        cluster.fail(ApiKey.OFFSET_FOR_LEADER_EPOCH, key, NotLeaderOrFollower.code)
        cluster.epochs[key] = 2
        await consumer.seek(key, OffsetAndMetadata(1, "", 1))
        assert await read(consumer, 1) == [b"1"]
