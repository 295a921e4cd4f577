"""Habits from other clients and first mistakes: each error says what to write, and what it says works."""

from __future__ import annotations

import logging
import os
import re
import time
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka
import pytest

from compat.waiting import until
from ottla import (
    Admin,
    Broker,
    ConfigResource,
    Consumer,
    NewTopic,
    Producer,
    RebalanceListener,
    TopicPartition,
    aio,
    errors,
)
from ottla.clients import habits
from ottla.config.properties import parse_properties
from ottla.consuming.values import ConsumerRecords
from ottla.errors import ConfigError, OttlaError
from ottla.net.client.connection import CannotConnect
from ottla.records.builder import RecordFuture

from .consumer_scenes import new_group, numbers, read, write

NOWHERE = "127.0.0.1:1"


# ── times ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_advice_for_seconds_gives_a_timestamp_of_today(bootstrap_servers: str, make_topic: Any) -> None:
    topic, now = make_topic(1), time.time()
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        with pytest.raises(TypeError, match="write int") as caught:
            producer.send(topic, b"x", timestamp=now)  # type: ignore[arg-type]
        advice = re.search(r"int\(.*\)(?= for seconds)", str(caught.value))
        assert advice is not None
        sent = producer.send(topic, b"x", timestamp=eval(advice[0])).get(30)
    assert abs(sent.timestamp - now * 1000) < 1


def test_seconds_without_a_fraction_are_warned_of(bootstrap_servers: str, make_topic: Any) -> None:
    topic, now = make_topic(1), int(time.time())
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        with pytest.warns(UserWarning, match=r"is in January 1970.*: write int\(time.time\(\) \* 1000\) for the"):
            producer.send(topic, b"x", timestamp=now).get(30)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for timestamp in (0, 1_000, now * 1000):
                producer.send(topic, b"x", timestamp=timestamp).get(30)


def test_a_column_of_seconds_is_warned_of_once(bootstrap_servers: str, make_topic: Any) -> None:
    import pyarrow as pa

    topic, now = make_topic(1), int(time.time())
    table = pa.table({"value": ["a", "b"], "timestamp": [now, now]})
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        many = pa.RecordBatchReader.from_batches(table.schema, table.to_batches() * 3)
        for data in (table, many, pa.table({"value": ["a", "b"], "timestamp": [0, now]})):
            with pytest.warns(UserWarning, match="January 1970.*: multiply the column 'timestamp' by 1000") as warned:
                producer.send_arrow(topic, data).result(30)
            assert [each.filename for each in warned] == [__file__]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            in_time = pa.array([now], pa.timestamp("s"))
            for times in ([now * 1000], [0], [None], pa.array([], pa.int64()), in_time):
                values = ["x"] * len(times)
                producer.send_arrow(topic, pa.table({"value": values, "timestamp": times})).result(30)


def test_times_of_other_kinds(bootstrap_servers: str, make_topic: Any) -> None:
    key = TopicPartition(make_topic(1), 0)
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        with pytest.raises(TypeError, match=r"not 1700000000000\.0: write int\(1700000000000\.0\)$"):
            producer.send(key.topic, b"x", timestamp=1.7e12)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"not a datetime: write int\(x\.timestamp\(\) \* 1000\)"):
            producer.send(key.topic, b"x", timestamp=datetime.now(UTC))  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="at least 0, in milliseconds since 1970, not -1"):
            producer.send(key.topic, b"x", timestamp=-1)
    with Consumer(bootstrap_servers=bootstrap_servers) as consumer:
        with pytest.raises(TypeError, match=r"int\(1794853102\.7 \* 1000\)"):
            consumer.offsets_for_times({key: 1794853102.7})  # type: ignore[dict-item]
        with pytest.raises(TypeError, match="a dict of times"):
            consumer.offsets_for_times([key])  # type: ignore[arg-type]
    with (
        Admin(bootstrap_servers=bootstrap_servers) as admin,
        pytest.raises(TypeError, match=r"int\(1794853102\.7 \* 1000\)"),
    ):
        admin.list_offsets({key: 1794853102.7})  # type: ignore[dict-item]


# ── no broker ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_producer_tells_a_wrong_address_at_once_and_then_gives_up(caplog: pytest.LogCaptureFixture) -> None:
    started = time.monotonic()
    with Producer(bootstrap_servers=NOWHERE) as producer, pytest.raises(CannotConnect, match="nothing listens at"):
        producer.send("orders", b"x")
    assert time.monotonic() - started < 20, "not max.block.ms, which is 60 s"
    first = next(each for each in caplog.records if each.name == "ottla.producer")
    assert first.levelno == logging.WARNING
    assert "nothing listens at 127.0.0.1:1" in first.message
    assert [each.name for each in caplog.records].count("ottla.producer") == 1


def test_a_producer_that_is_told_to_wait_waits() -> None:
    with (
        Producer(bootstrap_servers=NOWHERE, max_block_ms=300) as producer,
        pytest.raises(OttlaError, match=r"within 0\.3 s \(max\.block\.ms\): nothing listens"),
    ):
        producer.send("orders", b"x")


def test_a_transactional_producer_tells_a_wrong_address(caplog: pytest.LogCaptureFixture) -> None:
    with (
        Producer(bootstrap_servers=NOWHERE, transactional_id="t", max_block_ms=500) as producer,
        pytest.raises(OttlaError),
    ):
        producer.init_transactions()
    assert "nothing listens at 127.0.0.1:1" in caplog.text


async def test_start_of_an_asyncio_client_needs_a_broker(bootstrap_servers: str) -> None:
    for client in (aio.Producer, aio.Consumer):
        one = client(bootstrap_servers=NOWHERE)
        with pytest.raises(CannotConnect, match="nothing listens at"):
            await one.start()
        await one.close()
        other = client(bootstrap_servers=bootstrap_servers)
        await other.start()
        await other.close()


# ── poll ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_poll_of_milliseconds(bootstrap_servers: str, make_topic: Any) -> None:
    topic = make_topic(1)
    write(bootstrap_servers, topic, numbers(0, 1))
    with Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        with pytest.warns(UserWarning, match=r"waits up to 1000 seconds: write poll\(1\) or poll\(timeout_ms=1000\)"):
            assert len(consumer.poll(1000)) == 1
        started = time.monotonic()
        assert not consumer.poll(timeout_ms=50)
        assert time.monotonic() - started < 5
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert not consumer.poll(0.01)
        with pytest.raises(TypeError, match=r"timeout .* or timeout_ms, not both"):
            consumer.poll(5, timeout_ms=50)
        with pytest.raises(TypeError, match="timeout_ms must be a number of milliseconds"):
            consumer.poll(timeout_ms="50")  # type: ignore[arg-type]
        started = time.monotonic()
        assert not consumer.poll_arrow(timeout_ms=50).num_rows
        assert time.monotonic() - started < 5
        with pytest.raises(TypeError, match=r"poll_arrow takes timeout .* or timeout_ms, not both"):
            consumer.poll_arrow(5, timeout_ms=50)


async def test_a_poll_of_milliseconds_in_asyncio(bootstrap_servers: str, make_topic: Any) -> None:
    async with aio.Consumer(bootstrap_servers=bootstrap_servers) as consumer:
        await consumer.assign([TopicPartition(make_topic(1), 0)])
        started = time.monotonic()
        assert not await consumer.poll(timeout_ms=50)
        assert not (await consumer.poll_arrow(timeout_ms=50)).num_rows
        assert time.monotonic() - started < 5


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_the_advice_for_the_end_of_a_partition_finds_it(
    bootstrap_servers: str, make_topic: Any, isolation: str
) -> None:
    """Also behind the marker of a transaction, in an empty partition, and before the group has assigned anything."""
    topic = make_topic(2)
    with pytest.raises(ConfigError, match=r"enable\.partition\.eof") as caught:
        Consumer({"bootstrap.servers": bootstrap_servers, "enable.partition.eof": True})
    advice = re.search(r"`(.*)`", str(caught.value))
    assert advice is not None
    with Producer(bootstrap_servers=bootstrap_servers, transactional_id=new_group()) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send(topic, b"x", partition=0).get(30)
    with Consumer(
        bootstrap_servers=bootstrap_servers,
        group_id=new_group(),
        auto_offset_reset="earliest",
        isolation_level=isolation,
    ) as consumer:
        consumer.subscribe([topic])
        found: list[Any] = []
        ended: set[TopicPartition] = set()
        started = time.monotonic()
        while len(ended) < 2:
            assert time.monotonic() - started < 40
            found += consumer.poll(0.2)
            ended = {
                partition
                for partition in consumer.assignment()
                if eval(advice[1], {"consumer": consumer, "partition": partition})
            }
        assert [record.value for record in found] == [b"x"]


# ── arguments ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_can_be_committed_and_asked(bootstrap_servers: str, make_topic: Any) -> None:
    topic = make_topic(1)
    key = TopicPartition(topic, 0)
    write(bootstrap_servers, topic, numbers(0, 1))
    with Consumer(bootstrap_servers=bootstrap_servers, group_id=new_group(), auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        record = read(consumer, 1)[0]
        for commit in (consumer.commit, consumer.commit_async):
            with pytest.raises(TypeError, match=r"not a record.*: record\.offset \+ 1\}\)"):
                commit(record)
            with pytest.raises(TypeError, match="a dict of the next offsets to read, not list"):
                commit([key])
        consumer.commit({TopicPartition(record.topic, record.partition): record.offset + 1})
        for method in (consumer.committed, consumer.beginning_offsets, consumer.end_offsets):
            with pytest.raises(TypeError, match=re.escape(f"write {method.__name__}([{key!r}])")):
                method(key)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match=r"a list of ottla\.TopicPartition objects"):
                method([topic])  # type: ignore[list-item]
            for wrong in ((topic, 0), [(topic, 0)]):
                with pytest.raises(TypeError, match=rf"write ottla\.TopicPartition\('{topic}', 0\)"):
                    method(wrong)  # type: ignore[arg-type]
        committed = consumer.committed([key])[key]
        assert committed is not None
        assert committed.offset == 1


def test_partitions_of_other_clients(bootstrap_servers: str, make_topic: Any) -> None:
    topic = make_topic(1)
    key = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=bootstrap_servers, group_id=new_group(), auto_offset_reset="earliest") as consumer:
        consumer.assign([key])
        methods: list[Any] = [
            consumer.position,
            consumer.pause,
            consumer.current_lag,
            lambda one: consumer.seek(one, 0),
        ]
        for method in methods:
            for theirs in ((topic, 0), kafka.TopicPartition(topic, 0), confluent_kafka.TopicPartition(topic, 0)):
                with pytest.raises(TypeError, match=rf"write ottla\.TopicPartition\('{topic}', 0\)$"):
                    method(theirs)
            with pytest.raises(TypeError, match=r"must be an ottla\.TopicPartition\('topic', 0\), not 'orders'$"):
                method("orders")
        with pytest.raises(TypeError, match=re.escape(f"write {key!r}, without a list")):
            consumer.position([key])  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=rf"write ottla\.TopicPartition\('{topic}', 0\)$"):
            consumer.assign([(topic, 0)])  # type: ignore[list-item]
        with pytest.raises(TypeError, match=rf"write ottla\.TopicPartition\('{topic}', 0\)$"):
            consumer.commit({(topic, 0): 1})  # type: ignore[dict-item]
        consumer.pause((key,))
        assert consumer.paused() == {key}


def test_commits_as_with_confluent_kafka(bootstrap_servers: str, make_topic: Any) -> None:
    topic = make_topic(1)
    write(bootstrap_servers, topic, numbers(0, 1))
    with Consumer(bootstrap_servers=bootstrap_servers, group_id=new_group(), auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        message = read(consumer, 1)[0]
        with pytest.raises(TypeError, match=r"no asynchronous: commit\(\) waits .* commit_async\(\) does not wait"):
            consumer.commit(asynchronous=False)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="no message: write commit") as caught:
            consumer.commit(message=message)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="no parameter 'ofsets', only offsets and timeout"):
            consumer.commit(ofsets={})  # type: ignore[arg-type]
        advice = str(caught.value).partition(": write ")[2]
        eval(f"consumer.{advice}", {"consumer": consumer, "message": message, "TopicPartition": TopicPartition})
        committed = consumer.committed([TopicPartition(topic, 0)])[TopicPartition(topic, 0)]
        assert committed is not None
        assert committed.offset == 1


async def test_commits_as_with_confluent_kafka_in_asyncio(bootstrap_servers: str) -> None:
    async with aio.Consumer(bootstrap_servers=bootstrap_servers, group_id=new_group()) as consumer:
        with pytest.raises(TypeError, match="commit has no asynchronous"):
            await consumer.commit(asynchronous=False)  # type: ignore[arg-type]


def test_the_loops_of_other_clients(bootstrap_servers: str, make_topic: Any) -> None:
    topic = make_topic(1)
    write(bootstrap_servers, topic, numbers(0, 1))
    with Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        records: Any = consumer.poll(30)
        for name in ("error", "value", "topic", "offset"):
            with pytest.raises(AttributeError, match=rf"no method '{name}': .*list.* write `for record in records:`"):
                getattr(records, name)()
        for name in ("items", "values", "keys"):
            with pytest.raises(AttributeError, match=re.escape(f"write by_partition().{name}()")):
                getattr(records, name)()
        assert [(key, len(found)) for key, found in records.by_partition().items()] == [(TopicPartition(topic, 0), 1)]
        assert not hasattr(records, "items")
        assert "items" not in dir(records)
        assert "by_partition" in dir(records)
        assert consumer.poll(timeout_ms=1) == []


def test_errors_name_the_client_that_was_called(bootstrap_servers: str) -> None:
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        with pytest.raises(TypeError, match=r"^Admin\.create_topics\(\) got .*'timeout': write timeout_ms=5000"):
            admin.create_topics("habits-timeout", timeout=5)  # type: ignore[call-arg]
        assert "habits-timeout" in admin.create_topics("habits-timeout", timeout_ms=5000)
        with pytest.raises(TypeError, match=r"^Admin\.delete_topics\(\) missing"):
            admin.delete_topics()  # type: ignore[call-arg]
    with (
        Consumer(bootstrap_servers=bootstrap_servers) as consumer,
        pytest.raises(TypeError, match=r"^Consumer\.position\(\) missing"),
    ):
        consumer.position()  # type: ignore[call-arg]


def test_the_position_in_a_missing_partition(bootstrap_servers: str, make_topic: Any) -> None:
    key = TopicPartition(make_topic(2), 7)
    with Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([key])
        started = time.monotonic()
        with pytest.raises(errors.UnknownTopicOrPartition, match="has no partition 7: it has 0 to 1"):
            consumer.position(key)
        assert time.monotonic() - started < 20


def test_leaders_are_elected_on_a_single_broker(bootstrap_servers: str, make_topic: Any) -> None:
    key = TopicPartition(make_topic(1), 0)
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        assert key in admin.elect_leaders("preferred", [key]), "it has the preferred leader already"


def test_keywords_of_other_clients(bootstrap_servers: str, make_topic: Any) -> None:
    topic = make_topic(1)
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        with pytest.raises(TypeError, match=r"no on_delivery: write callback=f"):
            producer.send(topic, b"x", on_delivery=print)
        with pytest.raises(TypeError, match=r"no timestamp_ms: write timestamp="):
            producer.send(topic, b"x", timestamp_ms=5)

        def acked(err: Any, msg: Any) -> None:
            raise AssertionError("never called")

        with pytest.raises(TypeError, match=r"f\(metadata, error\): swap its parameters"):
            producer.send(topic, b"x", callback=acked)
        calls: list[Any] = []
        producer.send(topic, b"x", callback=lambda metadata, error: calls.append((metadata, error))).get(30)
        assert [error for _, error in calls] == [None]


def test_methods_of_other_clients(bootstrap_servers: str, make_topic: Any) -> None:
    topic = make_topic(1)
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        with pytest.raises(AttributeError, match=r"^Producer has no method 'produce': write send\(topic, value, key"):
            producer.produce(topic, b"x")  # type: ignore[attr-defined]
        with pytest.raises(AttributeError, match="'poll': leave it out"):
            producer.poll(0)  # type: ignore[attr-defined]
        assert not hasattr(producer, "nothing")
        assert not hasattr(producer, "produce")
        assert "produce" not in dir(producer)
        assert "send" in dir(producer)
        producer.send(topic, b"x").get(30)
    with Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", group_id=new_group()) as consumer:
        with pytest.raises(AttributeError, match=r"^Consumer has no method 'consume': write poll\("):
            consumer.consume(100, 1.0)  # type: ignore[attr-defined]
        with pytest.raises(TypeError, match=r"no on_assign: write listener=.*a method on_partitions_assigned\("):
            consumer.subscribe([topic], on_assign=print)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="no parameter 'topix', only topics, pattern and listener"):
            consumer.subscribe(topix=[topic])  # type: ignore[arg-type]

        class Mine(RebalanceListener):
            def on_partitions_assigned(self, partitions: Any) -> None:
                assigned.extend(partitions)

        assigned: list[TopicPartition] = []
        consumer.subscribe([topic], listener=Mine())
        assert len(read(consumer, 1)) == 1
        assert assigned == [TopicPartition(topic, 0)]
    with (
        Admin(bootstrap_servers=bootstrap_servers) as admin,
        pytest.raises(AttributeError, match=r"^Admin has no method 'list_consumer_groups': write list_groups\(\)$"),
    ):
        admin.list_consumer_groups()  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [aio.Producer, aio.Consumer, aio.Admin, Producer, Consumer, Admin])
def test_what_a_hint_says_exists(kind: Any) -> None:
    table = getattr(habits, kind.__name__.removeprefix("Async").upper())
    for name, instead in table.items():
        for method in re.findall(r"\b([a-z_]+)\(", instead):
            owner = Admin if instead.endswith("of an Admin") else RecordFuture if method == "get" else list
            known = [callable(getattr(one, method, None)) for one in (kind, owner, ConsumerRecords)]
            assert any(known), f"{name}: {instead}"


async def test_keywords_of_other_clients_in_asyncio(bootstrap_servers: str, make_topic: Any) -> None:
    async with aio.Producer(bootstrap_servers=bootstrap_servers) as producer:
        with pytest.raises(TypeError, match="no on_delivery"):
            await producer.send(make_topic(1), b"x", on_delivery=print)


@pytest.mark.parametrize(
    ("keyword", "here"),
    [("topic_configs", "configs"), ("config", "configs"), ("replica_assignment", "replica_assignments")],
)
def test_a_new_topic_with_the_names_of_other_clients(keyword: str, here: str) -> None:
    with pytest.raises(TypeError, match=f"NewTopic has no parameter '{keyword}': write {here}="):
        NewTopic("orders", 1, 1, **{keyword: {}})
    assert NewTopic("orders", configs={"retention.ms": 1}) == NewTopic("orders", configs={"retention.ms": 1})
    with pytest.raises(TypeError, match=r"no parameter 'sise'$"):
        NewTopic("orders", sise=1)


def test_a_table_without_values_or_for_many_topics(bootstrap_servers: str, make_topic: Any) -> None:
    import json

    import pyarrow as pa

    topic = make_topic(1)
    table = pa.table({"id": [1, 2], "name": ["a", "b"]})
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        with pytest.raises(ValueError, match="there is no column 'value', only 'id', 'name'") as caught:
            producer.send_arrow(topic, table)
        assert "[json.dumps(row, default=str) for row in rows]" in str(caught.value)
        rows = {"value": [json.dumps(row, default=str) for row in table.to_pylist()]}
        assert producer.send_arrow(topic, rows).result(30).records == 2
        with pytest.raises(ValueError, match="the column 'topic' would be ignored"):
            producer.send_arrow(topic, pa.table({"value": ["a"], "topic": ["elsewhere"]}))
        with Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            read = consumer.poll_arrow(10)
        assert producer.send_arrow(topic, read).result(30).records == read.num_rows, "what was read can be written"


# ── configs ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("client", "config", "message"),
    [
        (Producer, {"default.topic.config": {}}, "give its entries like other configs"),
        (Producer, {"on_delivery": print}, r"Pass a callback\(metadata, error\) to each send"),
        (Consumer, {"auto.offset.reset": "smallest"}, r"write earliest, as in Kafka"),
        (Consumer, {"auto.offset.reset": "largest"}, r"write latest, as in Kafka"),
        (Producer, {"bootstrap.servers": "PLAINTEXT://a:9092"}, "write a:9092, and set security.protocol=PLAINTEXT"),
        (Producer, {"bootstrap.servers": "http://a:9092"}, "write a:9092[.]"),
        (Producer, {"value.serializer": "yaml"}, "no serializer named 'yaml'. Use bytes, string, json, a function"),
        (Consumer, {"value.deserializer": "yaml"}, "no deserializer named 'yaml'"),
    ],
)
def test_configs_of_other_clients(client: type, config: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        client({"bootstrap.servers": "a:1", **config})


@pytest.mark.parametrize(
    ("name", "pattern"),
    [("^habit", "^habit.*"), ("^habit-.*", "^habit-.*"), ("^a$", "^a$"), ("^a|^b", "(^a|^b).*")],
)
def test_a_topic_that_is_a_pattern(bootstrap_servers: str, name: str, pattern: str) -> None:
    with Consumer(bootstrap_servers=bootstrap_servers, group_id=new_group()) as consumer:
        with pytest.raises(errors.InvalidTopicException, match=re.escape(f"write subscribe(pattern={pattern!r})")):
            consumer.subscribe([name])
        consumer.subscribe(pattern=pattern)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("prefix", ["^{}-", "^{}-|^nothing-"])
def test_a_pattern_of_the_beginning_of_names_is_warned_of_once(
    bootstrap_servers: str, caplog: pytest.LogCaptureFixture, prefix: str, protocol: str
) -> None:
    stem = new_group()
    topic, pattern = f"{stem}-eu", prefix.format(stem)
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        admin.create_topics(topic)
    write(bootstrap_servers, topic, numbers(0, 1))
    with Consumer(
        bootstrap_servers=bootstrap_servers,
        group_id=stem,
        auto_offset_reset="earliest",
        group_protocol=protocol,
        metadata_max_age_ms=100,
    ) as consumer:
        consumer.subscribe(pattern=pattern)
        until(lambda: not consumer.poll(0.2) and "the pattern matches no topic" in caplog.text, "it is warned of")
        advice = re.search(r"subscribe\(pattern='(.*)'\)", caplog.text)
        assert advice is not None
        assert not consumer.poll(1)
        consumer.subscribe(pattern=advice[1])
        assert len(read(consumer, 1)) == 1
    assert caplog.text.count("the pattern matches no topic") == 1


@pytest.mark.skipif(os.environ.get("OTTLA_COMPAT_BROKER") == "kafka", reason="they have an effect there")
def test_configs_of_kafka_without_an_effect_can_be_read_and_changed(bootstrap_servers: str) -> None:
    broker = ConfigResource("broker", "1")
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        assert admin.describe_configs(broker)[broker]["log.cleaner.threads"].value == "1"
        admin.alter_configs({broker: {"log.cleaner.threads": 2}})
        assert admin.describe_configs(broker)[broker]["log.cleaner.threads"].value == "2"
        admin.alter_configs({broker: {"log.cleaner.threads": None}})
        assert admin.describe_configs(broker)[broker]["log.cleaner.threads"].value == "1"
        for name, message in (
            ("sasl.kerberos.min.time.before.relogin", "has no effect on this broker"),
            ("delegation.token.secret.key", "is not supported. It requests delegation tokens"),
            ("controller.quorum.voters", "has no effect on this broker"),
            ("queued.max.requests", "Cannot be changed while the broker runs"),
        ):
            with pytest.raises(errors.InvalidRequest, match=message):
                admin.alter_configs({broker: {name: "1"}})
        with pytest.raises(errors.InvalidConfig, match="a config of share groups, which this broker does not have"):
            admin.alter_configs({ConfigResource("group", "g"): {"share.session.timeout.ms": 45_000}})


def test_a_broker_starts_with_kafkas_whole_default_configuration(tmp_path: Path) -> None:
    file = Path(__file__).parents[1] / "unit" / "config" / "kafka_broker.properties"
    defaults = parse_properties(file.read_text())
    own = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dir": str(tmp_path)}
    with (
        Broker(config={**defaults, **own}) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        assert producer.send("orders", b"x").get(30).offset == 0
