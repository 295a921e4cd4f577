"""The load generator of the group benchmarks. It uses one event loop and `ottla.protocol.codec`.

A broker responds in order, so a request is a frame and a callback for its response. Frequent frames are encoded once.
Everything runs in one thread. Its cost is reported as `generator`.
"""

from __future__ import annotations

import asyncio
import gc
import os
import struct
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from benchmarks.peer import HOST, Peer, machine_cpu_seconds
from ottla.protocol import codec
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.runtime.loops import new_event_loop

CLIENT_ID = "groups"
PATIENCE = 120.0
COORDINATOR_NOT_READY = frozenset({14, 15, 16})
VERSIONS = {
    ApiKey.METADATA: 12,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.FIND_COORDINATOR: 4,
    ApiKey.JOIN_GROUP: 9,
    ApiKey.HEARTBEAT: 4,
    ApiKey.LEAVE_GROUP: 5,
    ApiKey.SYNC_GROUP: 5,
    ApiKey.API_VERSIONS: 3,
    ApiKey.CREATE_TOPICS: 7,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 1,
}
_SIZE = struct.Struct(">i")
Result = TypeVar("Result")
OnAnswer = Callable[[bytes], None]


def request(api: ApiKey, message: Message) -> bytes:
    """Return a whole frame. The correlation id is constant, because responses are in order."""
    return bytes(codec.encode_request(api, VERSIONS[api], 1, CLIENT_ID, message))


class Connection(asyncio.Protocol):
    """A connection to a broker."""

    def __init__(self) -> None:
        self._waiting: deque[OnAnswer] = deque()
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._loop = asyncio.get_running_loop()

    def connection_lost(self, _: Exception | None) -> None:
        while self._waiting:
            self._waiting.popleft()(b"")

    def send(self, frame: bytes, on_answer: OnAnswer) -> None:
        """Send a request. An empty response means that the broker closed the connection."""
        self._waiting.append(on_answer)
        self._transport.write(frame)

    def data_received(self, data: bytes) -> None:
        if self._received:
            self._received += data
            data = bytes(self._received)
        position, have = 0, len(data)
        while have - position >= 4:
            end = position + 4 + _SIZE.unpack_from(data, position)[0]
            if end > have:
                break
            self._waiting.popleft()(data[position + 4 : end])
            position = end
        self._received = bytearray(data[position:]) if position < have else bytearray()

    async def call(self, api: ApiKey, message: Message) -> Struct:
        answered: asyncio.Future[bytes] = self._loop.create_future()
        self.send(request(api, message), partial(_answer, answered))
        payload = await answered
        if not payload:
            raise ConnectionError(f"the broker closed the connection instead of answering {api.name}")
        return codec.decode_response(api, VERSIONS[api], payload)

    def close(self) -> None:
        """Drop pending requests. The broker only sees the end of the connection."""
        self._waiting.clear()
        self._transport.abort()


def _answer(waiting: asyncio.Future[bytes], payload: bytes) -> None:
    if not waiting.done():  # unless the caller was cancelled
        waiting.set_result(payload)


async def connect(peer: Peer, count: int = 1) -> list[Connection]:
    loop = asyncio.get_running_loop()
    return [(await loop.create_connection(Connection, HOST, peer.port))[1] for _ in range(count)]


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine on the event loop that the broker uses too."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)


# Requests of all benchmarks.


async def create_topic(peer: Peer, topic: str, partitions: int) -> UUID:
    """Create a topic, wait for its partitions, and return its id."""
    (connection,) = await connect(peer)
    wanted = {"name": topic, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": []}
    message = {"topics": [wanted], "timeout": 60_000, "validate_only": False}
    code = (await connection.call(ApiKey.CREATE_TOPICS, message)).topics[0].error_code
    if code not in (0, 36):  # or TOPIC_ALREADY_EXISTS
        raise RuntimeError(f"{peer.name} did not make the topic {topic}: error code {code}")
    query = {"topics": [{"topic_id": None, "name": topic}], "allow_auto_topic_creation": False}
    async with asyncio.timeout(PATIENCE):
        while True:
            found = (await connection.call(ApiKey.METADATA, query)).topics[0]
            if not found.error_code and sum(not each.error_code for each in found.partitions) == partitions:
                break
            await asyncio.sleep(0.1)
    connection.close()
    topic_id: UUID = found.topic_id
    return topic_id


async def wait_for_coordinators(peer: Peer) -> None:
    """Create the offsets topic and wait until all its partitions serve groups."""
    (connection,) = await connect(peer)
    async with asyncio.timeout(PATIENCE):
        for number in range(500):
            while not await _is_served(connection, f"ready-{number}"):
                await asyncio.sleep(0.05)
    connection.close()


async def _is_served(connection: Connection, group: str) -> bool:
    wanted = {"key_type": 0, "coordinator_keys": [group]}
    found = (await connection.call(ApiKey.FIND_COORDINATOR, wanted)).coordinators[0]
    if found.error_code:
        return False
    beat = {"group_id": group, "generation_id": 1, "member_id": "nobody"}
    return (await connection.call(ApiKey.HEARTBEAT, beat)).error_code not in COORDINATOR_NOT_READY


async def serves(peer: Peer, api: ApiKey) -> bool:
    """Return whether the broker advertises the API version of this benchmark."""
    (connection,) = await connect(peer)
    about = {"client_software_name": "ottla-benchmarks", "client_software_version": "1"}
    versions = (await connection.call(ApiKey.API_VERSIONS, about)).api_keys
    connection.close()
    return any(each.api_key == api and each.min_version <= VERSIONS[api] <= each.max_version for each in versions)


# Costs.


@dataclass
class Cost:
    """The costs during a `watch`, in seconds."""

    wall: float = 0.0
    broker: float = 0.0
    generator: float = 0.0
    others: float = 0.0

    @property
    def generator_share(self) -> float:
        """The share of time that the load generator was on a core. Near 1 it limits the result."""
        return self.generator / self.wall if self.wall else 0.0

    @property
    def other_cores(self) -> float:
        return self.others / self.wall if self.wall else 0.0


@contextmanager
def watch(peer: Peer) -> Iterator[Cost]:
    """Measure the costs of the block. The generator collects garbage before it."""
    gc.collect()
    gc.disable()
    cost = Cost()
    broker, machine, own, begin = broker_seconds(peer), machine_cpu_seconds(), time.process_time(), time.monotonic()
    try:
        yield cost
    finally:
        gc.enable()
        cost.wall = time.monotonic() - begin
        cost.generator = time.process_time() - own
        cost.broker = broker_seconds(peer) - broker
        cost.others = max(0.0, machine_cpu_seconds() - machine - cost.broker - cost.generator)


def broker_seconds(peer: Peer) -> float:
    """Return the CPU seconds of a broker from its process clock, because /proc is too coarse for a rebalance.

    /proc counts the children, less its possible rounding error.
    """
    counted = Path(f"/proc/{peer.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    children = peer.cpu_seconds() - sum(map(int, counted)) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime((~peer.pid << 3) | 2) + (children if children > 0.05 else 0.0)


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
