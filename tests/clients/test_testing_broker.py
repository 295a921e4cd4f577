"""The embedded broker in tests: the manual clock, snapshots, and what is in topics and groups."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from compat.waiting import until
from ottla import Admin, Broker, Consumer, KafkaError, NewTopic, OttlaError, Producer, TopicPartition, errors
from ottla.testing import ManualClock

from .consumer_scenes import poll_until, sizes

HOUR = 3_600_000


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(clock="manual", log_initial_task_delay_ms=0) as one:
        yield one


def create(broker: Broker, name: str, **configs: Any) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics(NewTopic(name, 1, configs={key.replace("_", "."): value for key, value in configs.items()}))


def write(broker: Broker, topic: str, *values: bytes, **config: Any) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, **config) as producer:
        for value in values:
            producer.send(topic, value).get(20)


# ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_retention_without_waiting(broker: Broker) -> None:
    create(broker, "events", retention_ms=HOUR)
    write(broker, "events", b"old")
    broker.clock.advance(minutes=59)
    assert broker.topics["events"].values() == [b"old"]
    broker.clock.advance(minutes=10)
    assert broker.topics["events"].values() == []


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_session_without_waiting(broker: Broker, protocol: str) -> None:
    create(broker, "events")
    consumer = Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="g", group_protocol=protocol)
    consumer.subscribe(["events"])
    poll_until([consumer], consumer.assignment, "partitions")
    assert len(broker.groups["g"].members) == 1
    (member,) = broker.groups["g"].members
    with broker.faults.drop(client_id="ottla"):
        broker.clock.advance(seconds=46)
        assert member not in broker.groups["g"].members
    consumer.close(0)


def test_a_transaction_without_waiting(broker: Broker) -> None:
    create(broker, "events")
    with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="t") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("events", b"never committed").get(20)
        assert broker.topics["events"].values() == [b"never committed"]
        broker.clock.advance(minutes=2)
        end = TopicPartition("events", 0)
        with Consumer(bootstrap_servers=broker.bootstrap_servers, isolation_level="read_committed") as consumer:
            until(lambda: consumer.end_offsets([end])[end] == 2, "the broker has aborted it")
        assert broker.topics["events"].records(committed=True) == []
        with pytest.raises(KafkaError):
            producer.commit_transaction()


def test_offsets_expire_without_waiting(broker: Broker) -> None:
    create(broker, "events")
    write(broker, "events", b"1")
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.alter_group_offsets("g", {TopicPartition("events", 0): 1})
        assert broker.groups["g"].offsets == {TopicPartition("events", 0): 1}
        broker.clock.advance(days=8)
        assert "g" not in broker.groups


def test_time_stands_still_unless_it_is_moved(broker: Broker) -> None:
    before = broker.clock.now()
    assert abs(before - time.time() * 1000) < 60_000, "it starts with the real time, so producers fit"
    write(broker, "events", b"1")
    assert broker.clock.now() == before


@pytest.mark.parametrize("of_broker", [True, False], ids=["LogAppendTime", "explicit"])
def test_records_that_are_written_after_a_move_are_as_young_as_the_broker_says(broker: Broker, of_broker: bool) -> None:
    create(broker, "behind", retention_ms=HOUR)
    create(broker, "events", retention_ms=HOUR, message_timestamp_type="LogAppendTime" if of_broker else "CreateTime")
    broker.clock.advance(hours=25)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("behind", b"1").get(20)
        producer.send("events", b"1", timestamp=None if of_broker else broker.clock.now()).get(20)
    assert [record.timestamp for record in broker.topics["events"].records()] == [broker.clock.now()]
    broker.clock.advance(minutes=30)
    assert broker.topics["behind"].values() == [], "its client uses real time"
    assert broker.topics["events"].values() == [b"1"]
    broker.clock.advance(minutes=40)
    assert broker.topics["events"].values() == []


def test_time_is_moved_by_any_unit(broker: Broker) -> None:
    before = broker.clock.now()
    broker.clock.advance(milliseconds=5)
    broker.clock.advance(7)
    broker.clock.advance(days=1, hours=1, minutes=1, seconds=1.5, milliseconds=500)
    assert broker.clock.now() - before == 5 + 7 + 25 * HOUR + 62_000


def test_one_clock_for_several_brokers() -> None:
    clock = ManualClock(int(time.time() * 1000))
    config = {"log.initial.task.delay.ms": 0, "log.retention.ms": HOUR}
    with Broker(clock=clock, config=config) as one, Broker(clock=clock, config=config) as two:
        for broker in (one, two):
            write(broker, "events", b"1")
        clock.advance(hours=2)
        assert one.topics["events"].values() == two.topics["events"].values() == []
    clock.advance(hours=1)


# ── what is there ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_records_of_a_topic(broker: Broker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, compression_type="zstd") as producer:
        for number in range(3):
            producer.send("events", b"%d" % number, key=b"k", timestamp=number + 1, headers=[("h", b"x")])
    first, *others = broker.topics["events"].records()
    assert (first.key, first.value, first.offset, first.timestamp, list(first.headers)) == (
        *(b"k", b"0", 0, 1), [("h", b"x")],
    )  # fmt: skip
    assert [record.value for record in others] == [b"1", b"2"]
    assert broker.topics["events"].records(0) == [first, *others]
    assert list(broker.topics) == ["events"]
    assert "events" in broker.topics
    with pytest.raises(errors.UnknownTopicOrPartition, match="topic nothing does not exist"):
        broker.topics["nothing"].records()
    with pytest.raises(errors.UnknownTopicOrPartition, match="has no partition 5"):
        broker.topics["events"].records(5)


def test_committed_records_only(broker: Broker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="t") as producer:
        producer.init_transactions()
        for number in range(2):
            producer.begin_transaction()
            producer.send("events", b"%d" % number).get(20)
            producer.commit_transaction() if number else producer.abort_transaction()
    assert broker.topics["events"].values() == [b"0", b"1"]
    assert [record.value for record in broker.topics["events"].records(committed=True)] == [b"1"]
    assert broker.topics["events"].values(committed=True) == broker.topics["events"].values(0, committed=True) == [b"1"]


def test_a_broker_without_groups(broker: Broker) -> None:
    assert list(broker.groups) == []
    with pytest.raises(KeyError, match="there is no group billing"):
        broker.groups["billing"]


def test_only_a_manual_clock_can_be_moved() -> None:
    with Broker() as broker, pytest.raises(OttlaError, match=r'start it with Broker\(clock="manual"\)'):
        broker.clock.advance(hours=1)


def test_the_lag_of_a_group(broker: Broker) -> None:
    write(broker, "events", b"1", b"2", b"3")
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.alter_group_offsets("billing", {TopicPartition("events", 0): 1})
    group = broker.groups["billing"]
    assert (group.lag, group.lags, group.state) == (2, {TopicPartition("events", 0): 2}, "Empty")
    assert list(broker.groups) == ["billing"]
    with pytest.raises(KeyError, match="there is no group nobody"):
        broker.groups["nobody"]


# ── snapshots ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_brokers_start_from_a_snapshot(broker: Broker, tmp_path: Path) -> None:
    write(broker, "events", b"1", b"2")
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.alter_group_offsets("billing", {TopicPartition("events", 0): 1})
        admin.create_topics(NewTopic("other", 3, configs={"retention.ms": HOUR}))
    address = broker.bootstrap_servers
    prepared = broker.snapshot()
    assert broker.bootstrap_servers == address, "the broker goes on"
    write(broker, "events", b"3")
    for _ in range(2):
        with Broker(from_snapshot=prepared) as one:
            assert one.topics["events"].values() == [b"1", b"2"]
            assert one.groups["billing"].lag == 1
            write(one, "events", b"own")
            with Admin(bootstrap_servers=one.bootstrap_servers) as admin:
                assert len(admin.describe_topics("other")["other"].partitions) == 3
    kept = broker.snapshot(tmp_path / "kept")
    with Broker(tmp_path / "data", from_snapshot=kept.path) as one:
        assert one.topics["events"].values() == [b"1", b"2", b"3"]
    with pytest.raises(OttlaError, match="not empty: a snapshot can only be restored to a new directory"):
        Broker(tmp_path / "data", from_snapshot=kept).start()
    with pytest.raises(OttlaError, match="is not empty: give a new directory"):
        broker.snapshot(tmp_path / "kept")
    assert broker.topics["events"].values() == [b"1", b"2", b"3"], "it still runs"


@pytest.mark.parametrize("instance_id", [None, "reader-1"])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_has_no_members_in_a_broker_that_starts_from_a_snapshot(protocol: str, instance_id: str | None) -> None:
    config: dict[str, Any] = {"group_id": "billing", "group_protocol": protocol, "auto_offset_reset": "earliest"}
    static = {} if instance_id is None else {"group_instance_id": instance_id}
    with Broker() as broker:
        write(broker, "events", b"1", b"2")
        with (
            Consumer(bootstrap_servers=broker.bootstrap_servers, **config) as first,
            Consumer(bootstrap_servers=broker.bootstrap_servers, **config, **static) as second,
        ):
            for consumer in (first, second):
                consumer.subscribe(["events"])
            poll_until([first], first.assignment, "the first has the partition")
            poll_until([first, second], lambda: _is_shared(broker, first, second), "both have joined")
            (reader,) = (each for each in (first, second) if each.assignment())
            reader.commit({TopicPartition("events", 0): 1})
            members = broker.groups["billing"].members
            prepared = broker.snapshot()
            assert broker.groups["billing"].members == members, "they go on"
    with Broker(from_snapshot=prepared, clock="manual") as one:
        group = one.groups["billing"]
        assert (group.state, group.members, group.lag) == ("Empty", (), 1)
        # No session ends by itself here: the member would wait forever for those before it.
        with Consumer(bootstrap_servers=one.bootstrap_servers, **config, **static) as consumer:
            consumer.subscribe(["events"])
            values: list[bytes | None] = []
            until(partial(_poll_into, consumer, values), "the next record")
            assert values == [b"2"]


def _is_shared(broker: Broker, *consumers: Consumer) -> bool:
    group = broker.groups["billing"]
    return (group.state, len(group.members), sizes(*consumers)) == ("Stable", 2, [0, 1])


def _poll_into(consumer: Consumer, values: list[bytes | None]) -> bool:
    values += [record.value for record in consumer.poll(0.1)]
    return bool(values)


def test_a_snapshot_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(OttlaError, match=r"is not a snapshot: make one with broker\.snapshot"):
        Broker(from_snapshot=tmp_path)
    data = Path()
    with Broker() as broker:
        data = broker.snapshot().path
    until(lambda: not data.exists(), "a snapshot without a path is removed with its object")
