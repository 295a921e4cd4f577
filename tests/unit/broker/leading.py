"""A broker that leads partitions whose followers are played by the test, without ZooKeeper and other processes."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ottla.broker.node import Node
from ottla.broker.partition import Partition
from ottla.broker.server import BrokerServer
from ottla.config import BrokerConfig
from ottla.metadata.brokers import register_broker
from ottla.metadata.values import Endpoint, Registration
from ottla.protocol import codec
from ottla.protocol.apis import ApiKey
from ottla.testing import ManualClock
from unit.broker.wire import batch

ME, OTHER, THIRD = 1, 2, 3
EPOCH = 7
"""Of the brokers that the test plays."""


class Leading:
    """The broker 1 of a cluster; the test plays the brokers 2 and 3, in the racks b and c."""

    def __init__(self, server: BrokerServer, clock: ManualClock) -> None:
        self._server = server
        self.clock = clock
        self._open: list[asyncio.StreamWriter] = []

    @property
    def node(self) -> Node:
        return self._server.node

    def partition(self, topic: str = "orders", index: int = 0) -> Partition:
        return self.node.partition(topic, index)

    async def connect(self) -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._server.port)
        self._open.append(writer)
        return Client(reader, writer)

    async def call(self, api_key: int, version: int, message: dict[str, Any]) -> codec.Struct:
        """Send a request on a new connection."""
        client = await self.connect()
        return await client.call(api_key, version, message)

    async def create_topic(
        self, name: str = "orders", replicas: Sequence[Sequence[int]] = ((ME, OTHER),), **configs: str
    ) -> codec.Struct:
        entry = {
            "name": name,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": n, "broker_ids": each} for n, each in enumerate(replicas)],
            "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
        }
        created = (await self.call(ApiKey.CREATE_TOPICS, 7, {"topics": [entry]})).topics[0]
        assert created.error_code == 0, created.error_message
        return created

    async def produce(self, *values: bytes, topic: str = "orders", version: int = 9, acks: int = 1) -> codec.Struct:
        data = [{"name": topic, "partition_data": [{"index": 0, "records": batch(*values)}]}]
        message = {"transactional_id": None, "acks": acks, "timeout": 1000, "topic_data": data}
        return await self.call(ApiKey.PRODUCE, version, message)

    async def fetch(self, offset: int, *, topic: str = "orders", version: int = 12, **changes: Any) -> codec.Struct:
        """Fetch as a consumer."""
        return await self.call(ApiKey.FETCH, version, fetch_message(offset, topic=topic, **changes))

    async def follow(self, offset: int, *, replica: int = OTHER, log_start: int = 0, **changes: Any) -> codec.Struct:
        """Fetch as a follower."""
        client = await self.connect()
        return await client.follow(self, offset, replica=replica, log_start=log_start, **changes)


class Client:
    """A connection to the broker on the same event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def call(self, api_key: int, version: int, message: dict[str, Any]) -> codec.Struct:
        self._writer.write(codec.encode_request(api_key, version, 1, "test", message))
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return codec.decode_response(api_key, version, await self._reader.readexactly(size))

    async def follow(
        self,
        leading: Leading,
        offset: int,
        *,
        topic: str = "orders",
        replica: int = OTHER,
        log_start: int = 0,
        last_fetched_epoch: int = -1,
        whole: bool = False,
        **changes: Any,
    ) -> codec.Struct:
        """Fetch as a follower. With ``whole``, return the response and not only what it has of the partition."""
        partition = leading.partition(topic)
        wanted = {
            "current_leader_epoch": partition.leader_epoch,
            "last_fetched_epoch": last_fetched_epoch,
            "log_start_offset": log_start,
        }
        message = fetch_message(offset, wanted=wanted, **changes)
        message["topics"][0] = {"topic_id": partition.log.topic_id, "partitions": message["topics"][0]["partitions"]}
        message["replica_state"] = {"replica_id": replica, "replica_epoch": EPOCH}
        response = await self.call(ApiKey.FETCH, 17, message)
        return response if whole else response.responses[0].partitions[0]


def fetch_message(
    offset: int, *, topic: str = "orders", wanted: dict[str, Any] | None = None, **changes: Any
) -> dict[str, Any]:
    entry = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20, **(wanted or {})}
    return {
        "max_wait": 0,
        "min_bytes": 1,
        "topics": [{"topic": topic, "partitions": [entry]}],
        "forgotten_topics_data": [],
        **changes,
    }


@asynccontextmanager
async def leading(tmp_path: Path, **configs: object) -> AsyncIterator[Leading]:
    """Start the broker, and let it know of two other brokers."""
    clock = ManualClock()
    values = {name.replace("_", "."): value for name, value in configs.items()}
    config = BrokerConfig.parse(
        {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path), "broker.rack": "a", **values}
    )
    server = BrokerServer(config, clock=clock, durable_metadata=False)
    await server.start()
    leading = Leading(server, clock)
    try:
        for broker_id, rack in ((OTHER, "b"), (THIRD, "c")):
            address = (Endpoint("PLAINTEXT", "127.0.0.1", 1),)
            registration = Registration(broker_id, EPOCH, -1, address, rack)
            await server.node.controller.run(register_broker, server.node.metadata, registration)
        yield leading
    finally:
        for writer in leading._open:
            writer.close()
        await server.stop()
