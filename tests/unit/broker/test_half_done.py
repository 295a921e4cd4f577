"""A connection closes during a change of a topic: the change is still completed."""

from __future__ import annotations

import asyncio
import os
import struct
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla import errors
from ottla.broker.server import BrokerServer
from ottla.config import BrokerConfig
from ottla.protocol import codec
from ottla.protocol.apis import ApiKey
from unit.broker.wire import batch, fetch_request

TOPIC_ENTRY = {"name": "topic", "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
CREATE = (ApiKey.CREATE_TOPICS, 4, {"topics": [TOPIC_ENTRY], "timeout": 1000, "validate_only": False})
DELETE = (ApiKey.DELETE_TOPICS, 4, {"topic_names": ["topic"], "timeout": 1000})


class SlowJournal:
    """An fsync that blocks until released, once enabled."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()
        self._original = os.fsync
        monkeypatch.setattr(os, "fsync", self._sync)

    def _sync(self, descriptor: int) -> None:
        self.reached.set()
        assert self.go_on.wait(30)
        self._original(descriptor)

    def hold(self) -> None:
        self.reached.clear()
        self.go_on.clear()


class Client:
    """A connection to the broker on the same event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, api_key: int, version: int, message: dict[str, Any]) -> None:
        self._writer.write(codec.encode_request(api_key, version, 1, None, message))

    async def call(self, api_key: int, version: int, message: dict[str, Any]) -> codec.Struct:
        self.send(api_key, version, message)
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return codec.decode_response(api_key, version, await self._reader.readexactly(size))

    async def produce(self, value: bytes) -> int:
        data = [{"name": "topic", "partition_data": [{"index": 1, "records": batch(value)}]}]
        message = {"transactional_id": None, "acks": -1, "timeout": 1000, "topic_data": data}
        answer = (await self.call(ApiKey.PRODUCE, 9, message)).responses[0].partition_responses[0]
        assert answer.error_code == 0
        return int(answer.base_offset)

    def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def running(data_dir: Path) -> AsyncIterator[BrokerServer]:
    values = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(data_dir)}
    server = BrokerServer(BrokerConfig.parse(values))
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def connect(server: BrokerServer) -> Client:
    return Client(*await asyncio.open_connection("127.0.0.1", server.port))


async def ask_and_be_cut_off(server: BrokerServer, journal: SlowJournal, request: tuple[int, int, Any]) -> None:
    """Send a request and lose the connection while the journal is written."""
    client = await connect(server)
    journal.hold()
    client.send(*request)
    while not journal.reached.is_set():
        await asyncio.sleep(0.005)
    for connection in list(server.servers[0].connections):
        connection.close("for a test", expected=True)
    journal.go_on.set()
    client.close()


async def test_a_topic_is_created_with_all_its_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = SlowJournal(monkeypatch)
    async with running(tmp_path) as server:
        await ask_and_be_cut_off(server, journal, CREATE)
        client = await connect(server)
        answer = await client.call(*CREATE)
        assert answer.topics[0].error_code == errors.TopicAlreadyExists.code
        assert await client.produce(b"value") == 0
        client.close()


async def test_a_deleted_topic_is_gone_with_its_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later topic of the same name is a new topic, also after a restart."""
    journal = SlowJournal(monkeypatch)
    async with running(tmp_path) as server:
        client = await connect(server)
        await client.call(*CREATE)
        assert await client.produce(b"of the old one") == 0
        client.close()
        await ask_and_be_cut_off(server, journal, DELETE)
        client = await connect(server)
        assert (await client.call(*CREATE)).topics[0].error_code == 0
        assert await client.produce(b"of the new one") == 0
        client.close()
    async with running(tmp_path) as server:
        client = await connect(server)
        answer = await client.call(ApiKey.FETCH, 12, fetch_request("topic", 0, partition=1))
        assert b"of the new one" in answer.responses[0].partitions[0].records
        client.close()


async def test_files_of_an_unknown_topic_are_set_aside_however_long_its_name_is(tmp_path: Path) -> None:
    """A directory name has no room for the longest topic name plus a suffix."""
    entry = {**TOPIC_ENTRY, "name": "x" * 249}
    async with running(tmp_path) as server:
        client = await connect(server)
        answer = await client.call(*CREATE[:2], {"topics": [entry], "timeout": 1000, "validate_only": False})
        assert answer.topics[0].error_code == 0
        client.close()
    (tmp_path / "metadata.journal").unlink()
    async with running(tmp_path):
        pass
    assert len([name for name in os.listdir(tmp_path) if name.endswith("-stray")]) == 2
