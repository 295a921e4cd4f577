"""A follower fetches again, whatever went wrong before. In virtual time, with a real leader on a socket."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from tests.virtual_loop import run_virtually

from ottla import errors
from ottla.broker.cluster.fetchers import Fetchers
from ottla.broker.cluster.peers import Peers
from ottla.broker.handlers import fetch
from ottla.broker.node import Node
from ottla.broker.partition import LeaderSettings, Partition
from ottla.config import BrokerConfig, effective_topic_config
from ottla.metadata.brokers import register_broker
from ottla.metadata.values import Endpoint, Registration
from ottla.storage.log import Log
from ottla.storage.manager import LogManager
from ottla.storage.verification import SegmentUnverified
from ottla.types import TopicPartition
from unit.broker.leading import EPOCH, ME, OTHER, Leading, leading
from unit.broker.wire import batch

BUSY, IDLE = TopicPartition("orders", 0), TopicPartition("orders", 1)
SETTINGS = {"replica.fetch.backoff.ms": "1000", "replica.fetch.wait.max.ms": "500", "replica.socket.timeout.ms": "3000"}


class Pair:
    """Broker 1 leads two partitions that broker 2 follows. Nothing happens in the second one."""

    def __init__(self, leader: Leading, tmp_path: Path) -> None:
        self.leader = leader
        config = BrokerConfig.parse({"broker.id": str(OTHER), "log.dirs": str(tmp_path), **SETTINGS})
        logs = LogManager([tmp_path], config, clock=leader.clock)
        tmp_path.mkdir()
        logs.open()
        # All brokers have the same metadata.
        self.node = Node(config, leader.clock, leader.node.metadata, logs, leader.node.turn)
        self.node.broker_epoch = EPOCH
        self.peers = Peers(self.node)
        self.fetchers = Fetchers(self.node, self.peers)
        self.partitions = {place: self._partition(place) for place in (BUSY, IDLE)}

    def _partition(self, place: TopicPartition) -> Partition:
        topic = self.node.metadata.topics[place.topic]
        log = self.node.logs.create(place, topic.topic_id, effective_topic_config(self.node.config, topic.configs))
        return Partition(place.topic, place.partition, log, self.node.logs.flusher, 0)

    @property
    def log(self) -> Log:
        """The follower's log of the first partition."""
        return self.partitions[BUSY].log

    def lead(self, epoch: int, place: TopicPartition = BUSY) -> None:
        """The leader learns its epoch."""
        partition = self.leader.partition(place.topic, place.partition)
        state = replace(partition.state, leader_epoch=epoch, partition_epoch=partition.state.partition_epoch + 1)
        settings = LeaderSettings(1, 30_000, self.node.metadata.brokers)
        partition.lead(state, ME, settings, now=self.leader.clock.now())

    def follow(self, epoch: int = 0, place: TopicPartition = BUSY) -> None:
        """The follower learns who leads in an epoch."""
        state = self.node.metadata.topics[place.topic].states[place.partition]
        self.partitions[place].follow(replace(state, leader_epoch=epoch))
        self.fetchers.update(self.partitions[place])

    async def copied(self, end: int) -> float:
        """Wait until the follower has everything below an offset. Return how many seconds it took."""
        return await seconds_until(lambda: self.log.log_end_offset == end)


async def seconds_until(condition: Callable[[], object], most: float = 60) -> float:
    loop = asyncio.get_running_loop()
    started = loop.time()
    while not condition():
        assert loop.time() < started + most, f"the condition did not come true within {most} seconds"
        await asyncio.sleep(0.001 if loop.time() < started + 0.1 else 0.05)
    return loop.time() - started


@asynccontextmanager
async def replicated(tmp_path: Path) -> AsyncIterator[Pair]:
    async with leading(tmp_path / "leader") as leader:
        node, port = leader.node, leader._server.port
        known = node.metadata.brokers.get(ME)
        address = (Endpoint("PLAINTEXT", "127.0.0.1", port),)
        registration = Registration(ME, 1 if known is None else known.epoch + 1, -1, address)
        await node.controller.run(register_broker, node.metadata, registration)
        await leader.create_topic(replicas=((ME, OTHER), (ME, OTHER)))
        pair = Pair(leader, tmp_path / "follower")
        try:
            yield pair
        finally:
            await pair.fetchers.close()
            await pair.peers.close()
            pair.node.logs.close()


def virtually(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test in virtual time. It gets a leader and its follower."""

    @functools.wraps(test)
    def run(tmp_path: Path) -> None:
        async def whole() -> None:
            async with replicated(tmp_path) as pair:
                await test(pair)

        run_virtually(whole())

    del run.__wrapped__  # type: ignore[attr-defined]  # pytest would ask for its arguments.
    return run


@virtually
async def test_records_are_copied_at_once(pair: Pair) -> None:
    pair.follow()
    pair.follow(place=IDLE)
    await pair.leader.produce(b"1", b"2")
    assert await pair.copied(2) < 0.01


@virtually
async def test_a_leader_that_learns_its_epoch_later_is_followed_soon(pair: Pair) -> None:
    """The fetch of another partition, which waits for records, must not delay it: nothing can be committed before."""
    pair.follow(place=IDLE)
    pair.follow(epoch=1)
    await pair.leader.produce(b"1")
    await asyncio.sleep(0.015)
    pair.lead(1)
    assert await pair.copied(1) < 0.05


@virtually
async def test_a_follower_that_learns_of_an_epoch_later_follows_at_once(pair: Pair) -> None:
    pair.lead(3)
    pair.follow(place=IDLE)
    pair.follow(epoch=2)
    await pair.leader.produce(b"1")
    await asyncio.sleep(30)
    assert pair.log.log_end_offset == 0
    pair.follow(epoch=3)
    assert await pair.copied(1) < 0.01


@virtually
async def test_an_outdated_leader_is_asked_again_and_again(pair: Pair) -> None:
    """It may have learned its epoch meanwhile. At first often, later every replica.fetch.backoff.ms."""
    pair.follow(epoch=1)
    await pair.leader.produce(b"1")
    await asyncio.sleep(120)
    pair.lead(1)
    assert await pair.copied(1) <= 1.1


@virtually
async def test_a_leader_that_was_away_is_found_again(pair: Pair) -> None:
    await pair.leader.produce(b"1")
    state = pair.node.metadata.brokers[ME]
    pair.node.metadata.brokers[ME] = replace(state, listeners=(Endpoint("PLAINTEXT", "127.0.0.1", 1),))
    pair.follow()
    await asyncio.sleep(120)
    assert pair.log.log_end_offset == 0
    pair.node.metadata.brokers[ME] = state
    pair.fetchers.moved(ME)
    assert await pair.copied(1) < 0.01


@virtually
async def test_a_leader_that_is_not_known_yet_is_asked_when_it_is(pair: Pair) -> None:
    await pair.leader.produce(b"1")
    state = pair.node.metadata.brokers.pop(ME)
    pair.follow()
    await asyncio.sleep(120)
    pair.node.metadata.brokers[ME] = state
    assert await pair.copied(1) <= 1.1


@virtually
async def test_a_leader_that_hangs_is_asked_on_another_connection(pair: Pair) -> None:
    pair.follow()
    await pair.leader.produce(b"1")
    await pair.copied(1)
    connection = await connection_of(pair)
    accepted: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(lambda _, writer: accepted.append(writer), "127.0.0.1", 0)
    state = pair.node.metadata.brokers[ME]
    hangs = Endpoint("PLAINTEXT", "127.0.0.1", silent.sockets[0].getsockname()[1])
    pair.node.metadata.brokers[ME] = replace(state, listeners=(hangs,))
    connection.abort()
    await seconds_until(lambda: accepted)
    await pair.leader.produce(b"2")
    pair.node.metadata.brokers[ME] = state
    assert await pair.copied(2) < 5
    silent.close()
    for writer in accepted:
        writer.close()


async def connection_of(pair: Pair) -> Any:
    """The connection on which the follower fetches."""
    return await pair.peers.connection(ME, "fetch")


@virtually
async def test_a_connection_that_breaks_is_replaced(pair: Pair) -> None:
    pair.follow()
    for number in range(1, 6):
        (await connection_of(pair)).abort()
        await pair.leader.produce(b"x")
        assert await pair.copied(number) < 0.1


@virtually
async def test_a_session_that_the_leader_has_forgotten_starts_again(pair: Pair) -> None:
    pair.follow()
    await pair.leader.produce(b"1")
    await pair.copied(1)
    pair.leader.node.sessions._sessions.clear()
    await pair.leader.produce(b"2")
    assert await pair.copied(2) < 0.6


@virtually
async def test_a_partition_that_loses_and_gets_its_leader_is_followed_again(pair: Pair) -> None:
    pair.follow()
    await pair.leader.produce(b"1")
    await pair.copied(1)
    partition = pair.partitions[BUSY]
    partition.rest(replace(partition.state, leader=-1, leader_epoch=1))
    pair.fetchers.update(partition)
    pair.lead(2)
    await pair.leader.produce(b"2")
    await asyncio.sleep(10)
    assert pair.log.log_end_offset == 1
    pair.follow(epoch=2)
    assert await pair.copied(2) < 0.01


async def cut_to_the_leader(pair: Pair, *values: bytes) -> None:
    """The follower has other records. The leader has to verify a segment before it can answer."""
    read, reads = fetch.read, 0

    def unverified_at_first(*args: Any) -> Any:
        nonlocal reads
        reads += 1
        found = read(*args)
        if reads == 1:
            raise SegmentUnverified(SimpleNamespace(path="a segment", verify=lambda: None), 0)
        return found

    pair.log.append_as_follower(memoryview(batch(*values, leader_epoch=1)), now=pair.leader.clock.now())
    pair.lead(2)
    await pair.leader.produce(b"1")
    with mock.patch.object(fetch, "read", unverified_at_first):
        pair.follow(epoch=2)
        await seconds_until(lambda: pair.log.log_end_offset == 1 and pair.log.latest_epoch == 2)
        await pair.leader.produce(b"2")
        assert await pair.copied(2) < 1
    assert reads > 2
    assert content(pair.log) == content(pair.leader.partition().log)


@virtually
async def test_other_records_up_to_the_same_offset_are_cut(pair: Pair) -> None:
    """A follower that is told nothing of the difference believes that its log is the leader's. It waited for ever."""
    await cut_to_the_leader(pair, b"other")


@virtually
async def test_more_records_than_the_leader_has_are_cut(pair: Pair) -> None:
    await cut_to_the_leader(pair, b"other", b"more")


def content(log: Log) -> bytes:
    found = log.read(0, max_bytes=1 << 20, end_offset=log.log_end_offset, min_one_batch=True)
    return bytes(found.read())


@virtually
async def test_what_could_not_be_written_is_fetched_again(pair: Pair) -> None:
    append, failures = Log.append_as_follower, 0

    def failing(self: Log, records: memoryview, *, now: int) -> Any:
        nonlocal failures
        failures += 1
        if failures <= 20:
            raise (errors.CorruptMessage if failures % 2 else ValueError)("the records are damaged")
        return append(self, records, now=now)

    with mock.patch.object(Log, "append_as_follower", failing):
        pair.follow()
        await pair.leader.produce(b"1")
        assert await pair.copied(1) < 25


@virtually
async def test_the_leader_is_told_at_once_what_was_forced_to_disk(pair: Pair) -> None:
    """The fetch of another partition, which waits for records, must not delay it."""
    forced = asyncio.get_running_loop().create_future()
    leader = pair.leader.partition().leader
    assert leader is not None
    with mock.patch.object(Partition, "flushed", lambda self, offset: forced if offset else None):
        pair.follow()
        pair.follow(place=IDLE)
        await pair.leader.produce(b"1")
        await pair.copied(1)
        await asyncio.sleep(0.1)
        assert leader.followers[OTHER].log_end_offset == 0
        forced.set_result(None)
        assert await seconds_until(lambda: leader.followers[OTHER].log_end_offset == 1) < 0.05
