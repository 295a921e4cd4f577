"""Replication that is limited to a rate."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.broker.throttles import Throttle
from ottla.records import scan
from unit.broker.leading import ME, OTHER, Leading, leading
from unit.broker.wire import batch

RATE = 100_000


class Time:
    """A clock in milliseconds."""

    now = 0

    def __call__(self) -> int:
        return self.now


@pytest.mark.parametrize("seed", range(5))
def test_the_rate_is_kept_whatever_the_sizes(seed: int) -> None:
    chance, clock = random.Random(seed), Time()
    throttle, total = Throttle(lambda: RATE, clock), 0
    while clock.now < 20_000:
        clock.now += chance.randrange(1, 400)
        if throttle.room() > 0:
            size = chance.randrange(1, 60_000)
            throttle.moved(size)
            total += size
    assert total == pytest.approx(RATE * 20, rel=0.1)


def test_a_pause_does_not_allow_a_burst() -> None:
    clock = Time()
    throttle = Throttle(lambda: RATE, clock)
    clock.now = 1_900
    assert throttle.room() == RATE
    throttle.moved(RATE)
    clock.now = 3_600_000
    assert throttle.room() == RATE // 10


async def filled(broker: Leading, **configs: str) -> None:
    """Create a topic with about 2 MB, in batches of about 1 kB, that its follower does not have."""
    await broker.create_topic(replicas=((ME, OTHER),), **configs)
    topic = broker.node.metadata.topics["orders"]
    topic.states[0] = replace(topic.states[0], isr=(ME,), partition_epoch=1)
    await broker.node.replicas.update(topic)
    for _ in range(2_000):
        broker.partition().append(memoryview(bytearray(batch(b"x" * 1_000))), now=broker.clock.now())


async def bytes_in(broker: Leading, seconds: int) -> int:
    """Fetch as a follower that is always ready, and return the number of bytes that it gets."""
    client = await broker.connect()
    offset = total = 0
    for _ in range(seconds * 10):
        broker.clock.advance(100)
        records = memoryview((await client.follow(broker, offset)).records or b"")
        offset += len(scan(records, 0, len(records)).batches)
        total += len(records)
    return total


async def test_a_leader_sends_at_the_rate_to_a_follower_that_is_not_in_sync(tmp_path: Path) -> None:
    async with leading(tmp_path, leader_replication_throttled_rate=RATE) as broker:
        await filled(broker, leader_replication_throttled_replicas="0:1")
        assert await bytes_in(broker, 10) == pytest.approx(RATE * 10, rel=0.1)


@pytest.mark.parametrize("replicas", ["", "0:2", "1:1"])
async def test_other_replicas_are_not_limited(tmp_path: Path, replicas: str) -> None:
    async with leading(tmp_path, leader_replication_throttled_rate=RATE) as broker:
        await filled(broker, leader_replication_throttled_replicas=replicas)
        assert await bytes_in(broker, 1) > RATE * 10


async def test_a_follower_that_is_in_sync_is_not_limited(tmp_path: Path) -> None:
    async with leading(tmp_path, leader_replication_throttled_rate=RATE) as broker:
        await filled(broker, leader_replication_throttled_replicas="*")
        topic = broker.node.metadata.topics["orders"]
        topic.states[0] = replace(topic.states[0], isr=(ME, OTHER), partition_epoch=2)
        await broker.node.replicas.update(topic)
        assert await bytes_in(broker, 1) > RATE * 10
