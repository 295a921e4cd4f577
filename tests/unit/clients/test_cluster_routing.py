"""Routing to leaders and controllers in a cluster whose leaders move and whose connections break."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.unit.clients.fake_cluster import HANG_UP, FakeCluster

from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.cluster.cluster import Cluster
from ottla.errors import (
    KafkaError,
    LeaderNotAvailable,
    NotLeaderOrFollower,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from ottla.net.client.connection import CannotConnect, Connection
from ottla.protocol.apis import ApiKey
from ottla.types import TopicPartition


@asynccontextmanager
async def running(*, retries: int = 1_000, **options: Any) -> AsyncIterator[tuple[FakeCluster, AsyncAdmin]]:
    async with FakeCluster(**options).running() as cluster:
        address = ":".join(map(str, cluster.bootstrap[0]))
        quick = {"retry_backoff_ms": 5, "retry_backoff_max_ms": 5, "reconnect_backoff_ms": 5, "retries": retries}
        async with AsyncAdmin(bootstrap_servers=address, default_api_timeout_ms=3_000, **quick) as admin:
            yield cluster, admin


async def ends(admin: AsyncAdmin, *keys: TopicPartition) -> dict[TopicPartition, int]:
    found = await admin.list_offsets(dict.fromkeys(keys, "latest"))
    return {key: one.offset for key, one in found.items()}


async def test_each_partition_is_asked_for_at_its_leader() -> None:
    async with running() as (cluster, admin):
        keys = cluster.add_topic("t", [0, 1, 1])
        cluster.write(keys[2], b"a", b"b")
        assert await ends(admin, *keys) == dict(zip(keys, [0, 0, 2], strict=True))
        assert [cluster.count(ApiKey.LIST_OFFSETS, broker) for broker in (0, 1)] == [1, 1]


async def test_a_moved_leader_is_found_again() -> None:
    async with running() as (cluster, admin):
        (key, other) = cluster.add_topic("t", [0, 0])
        await ends(admin, key)
        cluster.leaders[key] = 1
        assert await ends(admin, key, other) == {key: 0, other: 0}
        assert cluster.count(ApiKey.LIST_OFFSETS, 1) == 1


@pytest.mark.parametrize("failure", [HANG_UP, NotLeaderOrFollower.code, 7, 19])
async def test_what_passes_is_tried_again(failure: int | str) -> None:
    async with running() as (cluster, admin):
        (key,) = cluster.add_topic("t", [1])
        cluster.fail(ApiKey.LIST_OFFSETS, key, failure, failure, failure)
        assert await ends(admin, key) == {key: 0}
        assert cluster.count(ApiKey.LIST_OFFSETS) == 4


async def test_what_does_not_pass_is_not_tried_again() -> None:
    async with running() as (cluster, admin):
        (key, other) = cluster.add_topic("t", [1, 1])
        cluster.fail(ApiKey.LIST_OFFSETS, key, TopicAuthorizationFailed.code)
        with pytest.raises(TopicAuthorizationFailed, match="partition t-0: "):
            await ends(admin, key)
        assert cluster.count(ApiKey.LIST_OFFSETS) == 1
        cluster.fail(ApiKey.LIST_OFFSETS, key, TopicAuthorizationFailed.code)
        found = await admin.list_offsets({key: "latest", other: "latest"}, raise_errors=False)
        assert (list(found), list(found.errors)) == ([other], [key])


async def test_a_partition_without_leader_is_waited_for_until_the_deadline() -> None:
    async with running() as (cluster, admin):
        (key,) = cluster.add_topic("t", [-1])
        with pytest.raises(KafkaError) as caught:
            await admin.list_offsets({key: "latest"}, timeout_ms=100)
        assert isinstance(caught.value, LeaderNotAvailable) or "within 0.1 s" in str(caught.value)
        waiting = asyncio.create_task(ends(admin, key))
        await asyncio.sleep(0)
        cluster.leaders[key] = 1
        assert await waiting == {key: 0}


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (TopicPartition("t", 5), "topic t has no partition 5: it has 0 to 1"),
        (TopicPartition("no", 0), "topic no does not exist"),
    ],
)
async def test_what_does_not_exist_is_said_soon(key: TopicPartition, message: str) -> None:
    async with running() as (cluster, admin):
        cluster.add_topic("t", [0, 1])
        async with asyncio.timeout(30):
            with pytest.raises(UnknownTopicOrPartition, match=message):
                await admin.list_offsets({key: "latest"}, timeout_ms=60_000)


async def test_a_topic_that_the_broker_creates_by_itself_is_waited_for() -> None:
    async with running() as (cluster, admin):
        with pytest.raises(UnknownTopicOrPartition, match="topic new does not exist"):
            await admin.cluster.topic("new")
        cluster.auto_create_after = 2
        assert len((await admin.cluster.topic("new", auto_create=True)).partitions) == 1


@pytest.mark.parametrize("retries", [0, 2])
async def test_an_error_is_raised_after_the_last_retry(retries: int) -> None:
    async with running(retries=retries) as (cluster, admin):
        (key,) = cluster.add_topic("t", [0])
        cluster.fail(ApiKey.LIST_OFFSETS, key, *[LeaderNotAvailable.code] * 5)
        with pytest.raises(LeaderNotAvailable):
            await ends(admin, key)
        assert cluster.count(ApiKey.LIST_OFFSETS, 0) == 1 + retries


async def test_the_controller_is_asked_and_found_again_when_it_moves() -> None:
    async with running() as (cluster, admin):
        await admin.describe_cluster()
        cluster.controller = 1
        assert list(await admin.create_topics("a")) == ["a"]
        assert cluster.count(ApiKey.CREATE_TOPICS, 0) == 1, "the old controller was asked first"
        assert list(await admin.create_topics("b")) == ["b"]
        assert cluster.created == ["a", "b"]
        assert cluster.count(ApiKey.CREATE_TOPICS, 0) == 1


async def test_a_bootstrap_server_that_is_down_does_not_matter_if_another_is_up() -> None:
    async with FakeCluster().running() as cluster:
        async with Cluster([("127.0.0.1", 1), *cluster.bootstrap]) as client:
            assert client.metadata.cluster_id == "fake"
        with pytest.raises(CannotConnect, match=r"127\.0\.0\.1:1\b.*127\.0\.0\.1:2\b"):
            await Cluster([("127.0.0.1", 1), ("127.0.0.1", 2)]).__aenter__()


async def test_metadata_that_changes_while_requests_are_sent_do_no_harm() -> None:
    async with FakeCluster().running() as cluster:
        keys = cluster.add_topic("t", [0, 1])
        async with Cluster(cluster.bootstrap) as client:
            await client.refresh(["t"])

            async def send(connection: Connection, share: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
                return dict(share)

            working = asyncio.ensure_future(client.by_leader(dict.fromkeys(keys, 1), send))
            # Another request finds out that no broker is reachable, before the shares are sent.
            asyncio.get_running_loop().call_soon(setattr, client, "metadata", client.metadata.without_nodes())
            assert await working == dict.fromkeys(keys, 1)


async def test_a_broker_that_hangs_up_while_it_starts_is_tried_again() -> None:
    async with running() as (cluster, admin):
        (key,) = cluster.add_topic("t", [1])
        await admin.describe_topics("t")
        cluster.fail(ApiKey.API_VERSIONS, None, HANG_UP, HANG_UP)
        assert await ends(admin, key) == {key: 0}
