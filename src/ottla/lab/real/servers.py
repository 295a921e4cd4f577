"""What the members of a real run talk to: a broker, or ZooKeeper, in processes of their own."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import tempfile
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Protocol

from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.values import NewTopic
from ottla.cluster.cluster import Cluster
from ottla.cluster.ports import free_port
from ottla.cluster.zookeeper import LocalZooKeeper
from ottla.lab.old import BROKERS, IDS, OWNERS
from ottla.lab.real.processes import Worker
from ottla.types import Millis
from ottla.zookeeper.client import ZooKeeper
from ottla.zookeeper.values import Create, Delete, Set

GROUP, TOPIC = "lab", "orders"
_COUNTED = ("join_group", "sync_group", "heartbeat", "leave_group", "consumer_group_heartbeat")
_COUNT = re.compile(r'^ottla_request_seconds_count\{api="(\w+)"\} (\d+)', re.MULTILINE)


class Servers(Protocol):
    """What a design needs beside its members."""

    module: str
    """The program of a member,"""
    spec: dict[str, Any]
    """and what it must know."""

    async def requests(self) -> int:
        """How many requests about the group were received so far."""

    async def grow(self, partitions: int) -> None:
        """Give the topic so many partitions."""

    async def fail(self, length: Millis) -> None:
        """Let the coordinator fail; for *watchers*, a broker."""


class BrokerServers:
    """A broker in a process of its own, with its ZooKeeper."""

    module = "ottla.lab.real.consumer"

    def __init__(self, cluster: Cluster, metrics: str, config: dict[str, Any]) -> None:
        self._cluster, self._metrics = cluster, metrics
        self.spec = {"topic": TOPIC, "config": {**config, "bootstrap.servers": cluster.bootstrap_servers}}
        self._earlier = 0

    async def requests(self) -> int:
        text = await asyncio.to_thread(self._scrape)
        return self._earlier + sum(int(count) for api, count in _COUNT.findall(text) if api in _COUNTED)

    def _scrape(self) -> str:
        with urllib.request.urlopen(f"http://{self._metrics}/metrics", timeout=10) as answer:
            return str(answer.read().decode())

    async def grow(self, partitions: int) -> None:
        async with AsyncAdmin({"bootstrap.servers": self._cluster.bootstrap_servers}) as admin:
            await admin.create_partitions({TOPIC: partitions})

    async def fail(self, length: Millis) -> None:
        self._earlier = await self.requests()
        broker = self._cluster.broker(1)
        await asyncio.to_thread(broker.kill)
        await asyncio.sleep(length / 1000)
        await asyncio.to_thread(broker.start)


@contextlib.asynccontextmanager
async def broker_servers(design: str, partitions: int, session_timeout: Millis) -> AsyncIterator[BrokerServers]:
    """Start a broker for *classic* or *consumer*."""
    metrics = f"127.0.0.1:{free_port()}"
    config = {
        "ottla.metrics.listener": metrics,
        "group.initial.rebalance.delay.ms": 3_000,
        "group.min.session.timeout.ms": 1_000,
        "group.consumer.session.timeout.ms": session_timeout,
        "group.consumer.min.session.timeout.ms": 1_000,
        "group.consumer.heartbeat.interval.ms": 3_000,
        "group.consumer.min.heartbeat.interval.ms": 1_000,
        "offsets.topic.num.partitions": 1,
    }
    given: dict[str, Any] = {
        "group.id": GROUP,
        "enable.auto.commit": False,
        "max.poll.interval.ms": 60_000,
        "metadata.max.age.ms": 5_000,
    }
    if design == "consumer":
        given["group.protocol"] = "consumer"
    else:
        assignor = "cooperative-sticky" if design == "classic-cooperative" else "range"
        given |= {
            "partition.assignment.strategy": assignor,
            "session.timeout.ms": session_timeout,
            "heartbeat.interval.ms": 3_000,
        }
    cluster = Cluster(brokers=1, config=config, isolation=False)
    await asyncio.to_thread(cluster.start)
    try:
        async with AsyncAdmin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            await admin.create_topics([NewTopic(TOPIC, num_partitions=partitions)])
        yield BrokerServers(cluster, metrics, given)
    finally:
        await asyncio.to_thread(cluster.stop)


class ZooKeeperServers:
    """A ZooKeeper, and for *server* a coordinator in a process of its own."""

    def __init__(self, design: str, server: LocalZooKeeper, zookeeper: ZooKeeper, session_timeout: Millis) -> None:
        self.module = "ottla.lab.real.watcher" if design == "watchers" else "ottla.lab.real.served"
        self.spec = {"zookeeper": server.address, "session_timeout": session_timeout}
        self._server, self._zookeeper = server, zookeeper
        self.coordinator: Worker | None = None
        self.counts = {"message": 0, "notified": 0}

    async def requests(self) -> int:
        """The packets that ZooKeeper received, with pings, and the messages between coordinator and members."""
        text = await asyncio.to_thread(_four_letters, self._server.port, "srvr")
        found = re.search(r"^Received: (\d+)", text, re.MULTILINE)
        assert found is not None, text
        return int(found[1]) + self.counts["message"]

    async def grow(self, partitions: int) -> None:
        await self._zookeeper.multi(Set("/partitions", str(partitions).encode()))

    async def fail(self, length: Millis) -> None:
        if self.coordinator is None:
            await self._zookeeper.multi(Delete(f"{BROKERS}/0"))
            await asyncio.sleep(length / 1000)
            await self._zookeeper.multi(Create(f"{BROKERS}/0"))
            return
        await self.coordinator.end()
        await asyncio.sleep(length / 1000)
        await self.start_coordinator()

    async def start_coordinator(self) -> None:
        self.coordinator = await Worker.spawn(self.module, self.spec)
        self.coordinator.on_event = self._told
        await self.coordinator.await_ready()
        self.coordinator.tell("coordinate")

    def _told(self, event: dict[str, Any]) -> None:
        self.counts[event["event"]] += 1


def _four_letters(port: int, word: str) -> str:
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(word.encode())
        parts = bytearray()
        while part := connection.recv(65536):
            parts += part
    return parts.decode()


@contextlib.asynccontextmanager
async def zookeeper_servers(design: str, partitions: int, session_timeout: Millis) -> AsyncIterator[ZooKeeperServers]:
    """Start a ZooKeeper for *watchers* or *server*."""
    with tempfile.TemporaryDirectory(prefix="ottla-lab-", ignore_cleanup_errors=True) as directory:
        server = LocalZooKeeper(Path(directory))
        await asyncio.to_thread(server.start)
        zookeeper = ZooKeeper(server.address, session_timeout_ms=60_000)
        servers = ZooKeeperServers(design, server, zookeeper, session_timeout)
        try:
            await zookeeper.start()
            for path in (IDS, OWNERS, BROKERS, f"{BROKERS}/0"):
                await zookeeper.multi(Create(path))
            await zookeeper.multi(Create("/partitions", str(partitions).encode()))
            if design == "server":
                await servers.start_coordinator()
            yield servers
        finally:
            if servers.coordinator is not None:
                await servers.coordinator.end()
            await zookeeper.stop()
            await asyncio.to_thread(server.stop)
