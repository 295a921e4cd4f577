"""The metadata of a client over time: newer leaders win, and lost brokers are found again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
from tests.unit.clients.fake_cluster import HANG_UP, FakeCluster

from ottla.clients.cluster.cluster import Cluster
from ottla.clients.cluster.connections import Backoff, State
from ottla.clients.cluster.metadata import Metadata, Node, PartitionInfo, TopicInfo
from ottla.clients.cluster.pool import ConnectionSettings
from ottla.config.client import ClientConfig
from ottla.net.client.connection import CannotConnect, Disconnected
from ottla.protocol.apis import ApiKey
from ottla.types import TopicPartition

QUICK = ConnectionSettings(reconnect=Backoff(1, 5))


def picture(leader: int, epoch: int, topic_id: int = 1) -> Metadata:
    partition = PartitionInfo(0, leader, epoch, (1, 2), (1, 2))
    nodes = {number: Node(number, "h", number) for number in (1, 2)}
    return Metadata("c", 1, nodes, {"t": TopicInfo("t", UUID(int=topic_id), False, {0: partition})})


def leader_after(*pictures: Metadata) -> int:
    known = Metadata()
    for one in pictures:
        known = known.with_topics(one)
    assert known.version == len(pictures)
    info = known.partition(TopicPartition("t", 0))
    assert info is not None
    return info.leader


def test_a_broker_that_is_behind_does_not_bring_an_old_leader_back() -> None:
    assert leader_after(picture(1, 5), picture(2, 6), picture(1, 5)) == 2
    assert leader_after(picture(1, 5), picture(2, 5)) == 2


def test_a_recreated_topic_starts_over() -> None:
    assert leader_after(picture(1, 5), picture(2, 0, topic_id=2)) == 2


def test_a_broker_that_tells_no_epochs_is_believed() -> None:
    assert leader_after(picture(1, 5), picture(2, -1)) == 2


def test_what_was_not_asked_for_stays() -> None:
    other = Metadata("c", 1, {}, {"u": TopicInfo("u", None, False, {})})
    assert set(picture(1, 0).with_topics(other).topics) == {"t", "u"}


# Over sockets.


@asynccontextmanager
async def running() -> AsyncIterator[tuple[FakeCluster, FakeCluster]]:
    async with FakeCluster(1).running() as one, FakeCluster(1).running() as two:
        yield one, two


def stop(cluster: FakeCluster) -> None:
    """Accept no more connections; `wait_closed` would wait for the existing ones."""
    for server in cluster._servers:
        server.close()


async def test_the_bootstrap_servers_are_asked_again_when_all_known_brokers_are_gone() -> None:
    async with running() as (old, new):
        client = Cluster([*old.bootstrap, *new.bootstrap], settings=QUICK, retry_backoff_ms=1)
        # Only the first broker is used at first, and does not know the other.
        client.bootstrap_servers = tuple(old.bootstrap)
        await client.refresh(())
        client.bootstrap_servers = (*old.bootstrap, *new.bootstrap)
        stop(old)
        old.fail(ApiKey.METADATA, None, HANG_UP)
        await client.refresh(())
        assert [node.port for node in client.metadata.nodes.values()] == [new.bootstrap[0][1]]
        await client.refresh(None)
        assert client.metadata.version == 3
        await client.close()


async def test_without_that_strategy_they_are_not() -> None:
    async with running() as (old, new):
        client = Cluster(old.bootstrap, settings=QUICK, retry_backoff_ms=1, rebootstrap=False)
        await client.refresh(())
        client.bootstrap_servers = tuple(new.bootstrap)
        stop(old)
        old.fail(ApiKey.METADATA, None, HANG_UP)
        with pytest.raises(CannotConnect, match="nothing listens"):
            await client.refresh(())
        await client.close()


async def test_brokers_that_say_nothing_for_long_are_not_asked_for_ever() -> None:
    async with running() as (old, new):
        client = Cluster(old.bootstrap, settings=QUICK, retry_backoff_ms=1, api_timeout_ms=1, rebootstrap_trigger_ms=0)
        await client.refresh(())
        client.bootstrap_servers = tuple(new.bootstrap)
        old.fail(ApiKey.METADATA, None, *[HANG_UP] * 9)
        with pytest.raises(Disconnected):
            await client.refresh(())
        await client.refresh(())
        assert [node.port for node in client.metadata.nodes.values()] == [new.bootstrap[0][1]]
        await client.close()


async def test_a_broken_connection_is_reopened_and_shared_by_all_callers() -> None:
    async with running() as (cluster, _):
        client = Cluster(cluster.bootstrap, settings=QUICK, retry_backoff_ms=1)
        (address,) = cluster.bootstrap
        found = await asyncio.gather(*(client.pool.get(address) for _ in range(5)))
        assert len({id(connection) for connection in found}) == 1
        cluster.fail(ApiKey.METADATA, None, HANG_UP)
        await client.refresh(())
        assert await client.pool.get(address) is not found[0]
        assert cluster.count(ApiKey.API_VERSIONS) == 2
        await client.close()
        with pytest.raises(Disconnected, match="the client is closed"):
            await client.pool.get(address)


async def test_idle_connections_are_closed_and_made_again_when_needed() -> None:
    async with running() as (cluster, _):
        settings = ConnectionSettings(reconnect=Backoff(60_000, 60_000), max_idle_ms=20)
        client = Cluster(cluster.bootstrap, settings=settings)
        (address,) = cluster.bootstrap
        connection = await client.pool.get(address)
        async with asyncio.timeout(20):
            while not connection.closed:
                await asyncio.sleep(0.005)
        assert client.pool.states.state(address) is State.DISCONNECTED
        # It was not a failure, so there is no back-off.
        async with asyncio.timeout(20):
            await client.refresh(())
        await client.close()


async def test_a_caller_that_gives_up_does_not_end_the_attempt_of_the_others() -> None:
    async with running() as (cluster, _):
        client = Cluster(cluster.bootstrap, settings=QUICK)
        (address,) = cluster.bootstrap
        impatient = asyncio.create_task(client.pool.get(address))
        patient = asyncio.create_task(client.pool.get(address))
        await asyncio.sleep(0)
        impatient.cancel()
        assert not (await patient).closed
        await client.close()


async def test_waiting_for_a_connection_fails_when_the_client_is_closed() -> None:
    client = Cluster([("127.0.0.1", 1)], settings=ConnectionSettings(reconnect=Backoff(60_000, 60_000)))
    with pytest.raises(CannotConnect):
        await client.pool.get(("127.0.0.1", 1))
    waiting = asyncio.create_task(client.pool.get(("127.0.0.1", 1)))
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(Disconnected, match="the client was closed"):
        await waiting


def test_a_cluster_is_made_of_a_configuration() -> None:
    options: dict[str, Any] = {
        "bootstrap_servers": "a:1,b:2",
        "client_id": "me",
        "reconnect_backoff_ms": 7,
        "connections_max_idle_ms": 8,
        "metadata_recovery_strategy": "none",
        "request_timeout_ms": 9,
    }
    cluster = Cluster.of(ClientConfig.given(None, options), api_timeout_ms=10)
    assert cluster.bootstrap_servers == (("a", 1), ("b", 2))
    assert (cluster.client_id, cluster.request_timeout_ms, cluster.api_timeout_ms) == ("me", 9, 10)
    assert not cluster.rebootstrap
    assert cluster.pool.settings.reconnect == Backoff(7, 1_000)
    assert cluster.pool.settings.max_idle_ms == 8
