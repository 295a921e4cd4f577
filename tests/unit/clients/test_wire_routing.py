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
    NotLeaderOrFollower,
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
        assert cluster.values(key) == [b"x"]

    run(test, newest={ApiKey.METADATA: 9})


def test_a_bootstrap_server_that_is_down_does_not_matter_if_another_is_up() -> None:
    async def main() -> None:
        async with FakeCluster().running() as cluster:
            async with Cluster([("127.0.0.1", 1), *cluster.bootstrap]) as client:
                assert client.metadata.cluster_id == "fake"
            with pytest.raises(CannotConnect, match=r"127\.0\.0\.1:1\b.*127\.0\.0\.1:2\b"):
                await Cluster([("127.0.0.1", 1), ("127.0.0.1", 2)]).__aenter__()

    asyncio.run(main())


def test_a_broker_that_hangs_up_while_it_starts_is_tried_again() -> None:
    async def test(cluster: FakeCluster, client: WireClient) -> None:
        (key,) = cluster.add_topic("t", [1])
        await client.topic("t")
        cluster.fail(ApiKey.API_VERSIONS, None, HANG_UP, HANG_UP)
        assert (await client.produce({key: batch(b"x")}))[key].base_offset == 0

    run(test)
