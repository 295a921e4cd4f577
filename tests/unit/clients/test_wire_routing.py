"""The wire client in a cluster whose leaders move and whose connections break."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.clients.fake_cluster import HANG_UP, FakeCluster

from ottla.clients.cluster import Cluster
from ottla.clients.wire import NewTopic, WireClient
from ottla.errors import (
    LeaderNotAvailable,
    MessageTooLarge,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from ottla.net.client import CannotConnect
from ottla.protocol.apis import ApiKey
from ottla.records import Record, encode_batch
from ottla.types import TopicPartition

Test = Callable[[FakeCluster, WireClient], Awaitable[None]]


def run(test: Test, **options: Any) -> None:
    async def main() -> None:
        async with FakeCluster(**options).running() as cluster:
            client = WireClient(cluster.bootstrap, api_timeout_ms=3_000)
            client.cluster.retry_backoff_ms = client.cluster.retry_backoff_max_ms = 5
            async with client:
                await test(cluster, client)

    asyncio.run(main())


def batch(*values: bytes) -> bytes:
    return encode_batch([Record(number, 0, None, value) for number, value in enumerate(values)])


def test_each_partition_is_written_at_its_leader() -> None:
    async def test(cluster: FakeCluster, client: WireClient) -> None:
        keys = cluster.add_topic("t", [0, 1, 1])
        await client.topic("t")
        appended = await client.produce({key: batch(b"a", b"b") for key in keys})
        assert {key: one.base_offset for key, one in appended.items()} == dict.fromkeys(keys, 0)
        assert [cluster.count(ApiKey.PRODUCE, broker) for broker in (0, 1)] == [1, 1]
        assert await client.end_offsets(keys) == dict.fromkeys(keys, 2)

    run(test)


def test_a_moved_leader_is_found_again_and_nothing_is_written_twice() -> None:
    async def test(cluster: FakeCluster, client: WireClient) -> None:
        (key, other) = cluster.add_topic("t", [0, 0])
        await client.topic("t")
        cluster.leaders[key] = 1
        await client.produce({key: batch(b"moved"), other: batch(b"stayed")})
        assert cluster.values(key) == [b"moved"]
        assert cluster.values(other) == [b"stayed"]

    run(test)


@pytest.mark.parametrize("failure", [HANG_UP, NotLeaderOrFollower.code, 7, 19])
def test_what_passes_is_tried_again(failure: int | str) -> None:
    async def test(cluster: FakeCluster, client: WireClient) -> None:
        (key,) = cluster.add_topic("t", [1])
        await client.topic("t")
        cluster.fail(ApiKey.PRODUCE, key, failure, failure, failure)
        assert (await client.produce({key: batch(b"x")}))[key].base_offset == 0
        assert cluster.count(ApiKey.PRODUCE) == 4

    run(test)


def test_what_does_not_pass_is_not_tried_again() -> None:
    async def test(cluster: FakeCluster, client: WireClient) -> None:
        (key,) = cluster.add_topic("t", [1])
        await client.topic("t")
        cluster.fail(ApiKey.PRODUCE, key, TopicAuthorizationFailed.code)
        with pytest.raises(TopicAuthorizationFailed, match="partition t-0: "):
            await client.produce({key: batch(b"x")})
        assert cluster.count(ApiKey.PRODUCE) == 1

    run(test)


def test_a_partition_without_leader_is_waited_for_until_the_deadline() -> None:
    async def test(cluster: FakeCluster, client: WireClient) -> None:
        (key,) = cluster.add_topic("t", [-1])
        client.cluster.api_timeout_ms = 100
        await client.topic("t")
        with pytest.raises(LeaderNotAvailable, match="t-0 has no leader"):
            await client.end_offsets([key])
        client.cluster.api_timeout_ms = 3_000
        waiting = asyncio.create_task(client.end_offsets([key]))
        await asyncio.sleep(0)
        cluster.leaders[key] = 1
        assert await waiting == {key: 0}

    run(test)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (TopicPartition("t", 5), "topic t has no partition 5: it has 0 to 1"),
        (TopicPartition("no", 0), "topic no does not exist"),
    ],
)
def test_what_does_not_exist_is_said_soon(key: TopicPartition, message: str) -> None:
    async def test(cluster: FakeCluster, client: WireClient) -> None:
        client.cluster.api_timeout_ms = 60_000
        cluster.add_topic("t", [0, 1])
        async with asyncio.timeout(30):
            with pytest.raises(UnknownTopicOrPartition, match=message):
                await client.end_offsets([key])

    run(test)


def test_a_topic_that_the_broker_creates_by_itself_is_waited_for() -> None:
    async def test(cluster: FakeCluster, client: WireClient) -> None:
        with pytest.raises(UnknownTopicOrPartition, match="topic new does not exist"):
            await client.topic("new")
        cluster.auto_create_after = 2
        assert len((await client.topic("new", auto_create=True)).partitions) == 1

    run(test)


def test_the_controller_is_asked_and_found_again_when_it_moves() -> None:
    async def test(cluster: FakeCluster, client: WireClient) -> None:
        cluster.controller = 1
        assert await client.create_topics([NewTopic("a")]) == {"a": None}
        assert cluster.count(ApiKey.CREATE_TOPICS, 0) == 1, "the old controller was asked first"
        assert await client.create_topics([NewTopic("b")]) == {"b": None}
        assert cluster.created == ["a", "b"]
        assert cluster.count(ApiKey.CREATE_TOPICS, 0) == 1

    run(test)


def test_an_old_cluster_without_topic_ids_is_spoken_to_by_name() -> None:
    async def test(cluster: FakeCluster, client: WireClient) -> None:
        (key,) = cluster.add_topic("t", [0])
        assert (await client.topic("t")).topic_id is None
        await client.produce({key: batch(b"x")})
        fetcher = client.fetcher({key: 0})
        assert [record.value for one in await fetcher.poll(timeout_ms=1000) for record in one.records] == [b"x"]
        await fetcher.close()

    run(test, newest={ApiKey.METADATA: 9})


def test_a_bootstrap_server_that_is_down_does_not_matter_if_another_is_up() -> None:
    async def main() -> None:
        async with FakeCluster().running() as cluster:
            async with Cluster([("127.0.0.1", 1), *cluster.bootstrap]) as client:
                assert client.metadata.cluster_id == "fake"
            with pytest.raises(CannotConnect, match=r"127\.0\.0\.1:1\b.*127\.0\.0\.1:2\b"):
                await Cluster([("127.0.0.1", 1), ("127.0.0.1", 2)]).__aenter__()

    asyncio.run(main())


# Fetching.


def values(polled: list[Any]) -> list[bytes | None]:
    return [record.value for fetched in polled for record in fetched.records]


async def read(fetcher: Any, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    async with asyncio.timeout(30):
        while len(found) < count:
            found += values(await fetcher.poll(timeout_ms=1_000))
    return found


def test_records_come_once_from_the_position_on_even_in_the_middle_of_a_batch() -> None:
    async def test(cluster: FakeCluster, client: WireClient) -> None:
        (key,) = cluster.add_topic("t", [0])
        await client.topic("t")
        cluster.write(key, b"0", b"1", b"2")
        cluster.write(key, b"3", b"4")
        fetcher = client.fetcher({key: 1})
        assert await read(fetcher, 4) == [b"1", b"2", b"3", b"4"]
        assert fetcher.positions == {key: 5}
        assert await fetcher.poll(timeout_ms=50) == []
        cluster.write(key, b"5")
        assert await read(fetcher, 1) == [b"5"]
        await fetcher.close()

    run(test)


@pytest.mark.parametrize("partition_max_bytes", [1, 100, 1000])
def test_batches_that_are_cut_off_come_with_the_next_fetch(partition_max_bytes: int) -> None:
    async def test(cluster: FakeCluster, client: WireClient) -> None:
        from ottla.clients.fetch import Fetcher

        (key,) = cluster.add_topic("t", [0])
        await client.topic("t")
        for number in range(20):
            cluster.write(key, b"%d" % number, b"x" * 50)
        fetcher = Fetcher(client.cluster, {key: 0}, partition_max_bytes=partition_max_bytes)
        assert (await read(fetcher, 40))[::2] == [b"%d" % number for number in range(20)]
        await fetcher.close()

    run(test)


def test_a_broker_that_hangs_up_while_it_starts_is_tried_again() -> None:
    async def test(cluster: FakeCluster, client: WireClient) -> None:
        (key,) = cluster.add_topic("t", [1])
        await client.topic("t")
        cluster.fail(ApiKey.API_VERSIONS, None, HANG_UP, HANG_UP)
        assert (await client.produce({key: batch(b"x")}))[key].base_offset == 0

    run(test)


@pytest.mark.parametrize("failure", [HANG_UP, NotLeaderOrFollower.code])
def test_a_fetch_survives_broken_connections_and_moving_leaders(failure: int | str) -> None:
    async def test(cluster: FakeCluster, client: WireClient) -> None:
        (key, other) = cluster.add_topic("t", [0, 1])
        await client.topic("t")
        cluster.write(key, b"a")
        cluster.write(other, b"b")
        cluster.fail(ApiKey.FETCH, key, failure, failure)
        fetcher = client.fetcher({key: 0, other: 0})
        assert sorted(map(bytes, await read(fetcher, 2))) == [b"a", b"b"]
        cluster.leaders[key] = 1
        cluster.write(key, b"c")
        assert await read(fetcher, 1) == [b"c"]
        await fetcher.close()

    run(test)


def test_a_topic_that_is_deleted_while_it_is_read_is_an_error() -> None:
    async def test(cluster: FakeCluster, client: WireClient) -> None:
        client.cluster.api_timeout_ms = 60_000
        (key,) = cluster.add_topic("t", [0])
        await client.topic("t")
        fetcher = client.fetcher({key: 0})
        assert await fetcher.poll(timeout_ms=10) == []
        cluster.leaders.clear()
        async with asyncio.timeout(30):
            with pytest.raises(UnknownTopicOrPartition, match="topic t does not exist any more"):
                await fetcher.poll(timeout_ms=10_000)
        await fetcher.close()

    run(test)


def test_an_offset_that_is_gone_is_an_error_that_names_it() -> None:
    async def test(cluster: FakeCluster, client: WireClient) -> None:
        (key,) = cluster.add_topic("t", [0])
        await client.topic("t")
        fetcher = client.fetcher({key: 7})
        with pytest.raises(OffsetOutOfRange, match="t-0 has no offset 7"):
            await fetcher.poll(timeout_ms=1_000)
        await fetcher.close()

    run(test)


# Producing.


def test_a_producer_keeps_the_order_of_each_partition_through_failures() -> None:
    async def test(cluster: FakeCluster, client: WireClient) -> None:
        keys = cluster.add_topic("t", [0, 1])
        await client.topic("t")
        for key in keys:
            cluster.fail(ApiKey.PRODUCE, key, 6, 7, 19)
        producer = client.producer("t", buffer_bytes=2_000)
        for number in range(500):
            producer.add(None, b"%d" % number, timestamp=0, partition=number % 2)
            await producer.ready()
        cluster.leaders[keys[0]] = 1
        await producer.flush()
        for key in keys:
            assert cluster.values(key) == [b"%d" % number for number in range(key.partition, 500, 2)]
        assert producer.acknowledged == 500
        await producer.close()

    run(test)


def test_a_batch_that_is_too_large_for_the_topic_goes_in_parts() -> None:
    async def test(cluster: FakeCluster, client: WireClient) -> None:
        (key,) = cluster.add_topic("t", [0])
        await client.topic("t")
        cluster.max_batch_bytes = 500
        producer = client.producer("t")
        sent = [b"%03d" % number * 30 for number in range(100)]
        for value in sent:
            producer.add(None, value, timestamp=0)
        await producer.flush()
        assert cluster.values(key) == sent
        producer.add(None, b"x" * 600, timestamp=0)
        with pytest.raises(
            MessageTooLarge,
            match=r"a record of 612 bytes is larger than topic t accepts.*max\.message\.bytes",
        ):
            await producer.flush()
        await producer.close()

    run(test)


def test_without_acks_nothing_is_waited_for_but_everything_arrives() -> None:
    async def test(cluster: FakeCluster, client: WireClient) -> None:
        (key,) = cluster.add_topic("t", [1])
        await client.topic("t")
        producer = client.producer("t", acks=0)
        for number in range(100):
            producer.add(None, b"%d" % number, timestamp=0)
        await producer.flush()
        await producer.close()
        cluster.arrived.clear()
        async with asyncio.timeout(30):
            while len(cluster.values(key)) < 100:
                await cluster.arrived.wait()
        assert cluster.values(key) == [b"%d" % number for number in range(100)]

    run(test)


def test_keys_choose_the_partition_and_the_same_key_stays_there() -> None:
    async def test(cluster: FakeCluster, client: WireClient) -> None:
        keys = cluster.add_topic("t", [0, 1, 0])
        await client.topic("t")
        producer = client.producer("t")
        for number in range(30):
            producer.add(b"key-%d" % (number % 5), b"%d" % number, timestamp=0)
        await producer.flush()
        await producer.close()
        homes = {int(value or b"") % 5: key.partition for key in keys for value in cluster.values(key)}
        assert all(int(value or b"") % 5 in homes for key in keys for value in cluster.values(key))
        assert sum(len(cluster.values(key)) for key in keys) == 30
        assert len(producer.partitions_used) == len(set(homes.values()))

    run(test)
