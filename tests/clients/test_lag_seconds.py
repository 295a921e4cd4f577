"""Lag in seconds against producers of a known rate: wrong by less than a second or 5 %, whatever happens to a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from ottla import Admin, Broker, NewTopic, Producer, TopicPartition
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.lag import LOOKS, ROUNDS, log_bounds, measure
from ottla.monitoring.lag import Lags
from ottla.runtime.clock import SystemClock

RATE = 20
COUNT = 12_000
AGE_MS = COUNT * 1000 // RATE
POSITIONS = (0, 10, 3_000, 6_001, 11_000, 11_990, 11_999)


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    config = {"log.retention.check.interval.ms": 100, "log.cleaner.backoff.ms": 100, "log.initial.task.delay.ms": 0}
    with Broker(config=config) as one:
        yield one.bootstrap_servers


def make(broker: str, name: str, **configs: str) -> TopicPartition:
    with Admin({"bootstrap.servers": broker}) as admin:
        given = {key.replace("_", "."): value for key, value in configs.items()}
        admin.create_topics([NewTopic(name, num_partitions=1, configs=given)])
    return TopicPartition(name, 0)


def produce(
    broker: str, key: TopicPartition, *, transactions: int = 0, keys: Callable[[int], bytes | None] = lambda _: None
) -> int:
    """Write records whose timestamps are those of a steady producer that writes until now; returns the first one."""
    first = SystemClock().now() - AGE_MS
    options = {"transactional.id": f"{key.topic}-writer"} if transactions else {}
    with Producer({"bootstrap.servers": broker, "linger.ms": 0, "batch.size": 4_096, **options}) as producer:
        if transactions:
            producer.init_transactions()
        for number in range(COUNT):
            if transactions and number % transactions == 0:
                producer.begin_transaction()
            at = first + number * 1000 // RATE
            producer.send(key.topic, value=b"x" * 1_000, key=keys(number), partition=0, timestamp=at)
            if transactions and number % transactions == transactions - 1:
                producer.commit_transaction()
        producer.flush()
    return first


async def lag_of(
    broker: str, key: TopicPartition, positions: tuple[int, ...], now: int | None = None
) -> tuple[dict[int, float | None], int]:
    """Lag in seconds by position, and the moment of the measurement."""
    async with AsyncAdmin({"bootstrap.servers": broker}) as admin:
        await admin.cluster.refresh({key.topic})
        bounds = await log_bounds(admin.cluster, [key])
        lags = Lags()
        clock = SystemClock().now if now is None else lambda: now
        rounds = await measure(admin.cluster, lags, {key: positions}, bounds, rounds=ROUNDS * 4, looks=LOOKS, now=clock)
        moment = clock()
        assert rounds < ROUNDS * 4
        return {one: lags.seconds(key, one, now=moment) for one in positions}, moment


def assert_close(found: float | None, truth: float) -> None:
    assert found is not None
    assert abs(found - truth) < max(1.0, 0.05 * truth), (found, truth)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


async def test_a_producer_of_known_rate(broker: str) -> None:
    key = make(broker, "steady")
    first = produce(broker, key)
    lags, now = await lag_of(broker, key, POSITIONS)
    for position, found in lags.items():
        assert_close(found, (now - first) / 1000 - position / RATE)
    assert (await lag_of(broker, key, (COUNT,)))[0] == {COUNT: 0.0}


async def test_after_retention(broker: str) -> None:
    key = make(broker, "short", segment_bytes="1048576", retention_ms=str(AGE_MS // 2))
    first = produce(broker, key)
    with Admin({"bootstrap.servers": broker}) as admin:
        wait_until(lambda: admin.list_offsets({key: "earliest"})[key].offset > 5_000)
        start = admin.list_offsets({key: "earliest"})[key].offset
    lags, now = await lag_of(broker, key, POSITIONS)
    for position, found in lags.items():
        assert_close(found, (now - first) / 1000 - max(position, start) / RATE)


async def test_after_compaction(broker: str) -> None:
    """Of the first half only each hundredth record is left."""
    configs = {"cleanup_policy": "compact", "segment_bytes": "1048576", "min_cleanable_dirty_ratio": "0.01"}
    key = make(broker, "compacted", **configs)
    first = produce(broker, key, keys=lambda n: b"%d" % n if n % 100 == 0 or n > 6_000 else b"often")
    with Admin({"bootstrap.servers": broker}) as admin:
        wait_until(lambda: admin.list_offsets({key: first + 1})[key].offset == 100)
        wait_until(lambda: admin.list_offsets({key: first + 5_701 * 1000 // RATE})[key].offset == 5_800)
    lags, now = await lag_of(broker, key, (1, 150, 3_050, 5_799, 5_800, 11_000))
    for position, found in lags.items():
        left = position if position > 6_000 else -(-position // 100) * 100
        assert_close(found, (now - first) / 1000 - left / RATE)


async def test_with_transactions() -> None:
    """Each transaction of 100 records has a marker, which takes an offset."""
    with Broker(clock="manual") as one:
        clock, broker = one.clock, one.bootstrap_servers
        key = make(broker, "transactional")
        first = clock.now()
        with Producer({"bootstrap.servers": broker, "transactional.id": "writer"}) as producer:
            producer.init_transactions()
            for number in range(5_000):
                if number % 100 == 0:
                    producer.begin_transaction()
                producer.send(key.topic, value=b"x", partition=0, timestamp=first + number * 1000 // RATE)
                if number % 100 == 99:
                    clock.advance(100 * 1000 // RATE)
                    producer.commit_transaction()
        now = clock.now()
        lags, _ = await lag_of(broker, key, (0, 100, 2_525, 4_000, 5_047), now=now)
        for position, found in lags.items():
            assert_close(found, (now - first) / 1000 - (position - position // 101) / RATE)
        # Only the last marker is unread: there is nothing to read.
        assert (await lag_of(broker, key, (5_049,), now=now))[0] == {5_049: 0.0}


async def test_a_mirrored_topic_whose_markers_are_newer_than_later_records(broker: str) -> None:
    """The first marker has the time of the mirror. So ListOffsets finds nothing after it."""
    key = make(broker, "mirrored")
    first = produce(broker, key, transactions=100)
    lags, now = await lag_of(broker, key, (0, 100, 5_050, 10_199))
    for position, found in lags.items():
        assert_close(found, (now - first) / 1000 - (position - position // 101) / RATE)


async def test_on_any_broker(bootstrap_servers: str) -> None:
    """With ``make compat-kafka`` the broker is Apache Kafka."""
    key = make(bootstrap_servers, f"any-{uuid4().hex[:8]}")
    first = produce(bootstrap_servers, key)
    lags, now = await lag_of(bootstrap_servers, key, POSITIONS)
    for position, found in lags.items():
        assert_close(found, (now - first) / 1000 - position / RATE)
    key = make(bootstrap_servers, f"any-{uuid4().hex[:8]}")
    first = produce(bootstrap_servers, key, transactions=1_000)
    lags, now = await lag_of(bootstrap_servers, key, (0, 1_000, 5_050))
    for position, found in lags.items():
        assert_close(found, (now - first) / 1000 - (position - position // 1_001) / RATE)
    last = COUNT + COUNT // 1_000 - 1
    assert (await lag_of(bootstrap_servers, key, (last,)))[0] == {last: 0.0}
