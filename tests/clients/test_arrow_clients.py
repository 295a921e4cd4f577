"""Tables over real sockets: send_arrow and poll_arrow, alone, mixed with single records, and with confluent-kafka."""

from __future__ import annotations

import asyncio
import os
from typing import Any
from uuid import uuid4

import confluent_kafka
import pandas
import polars
import pyarrow as pa
import pytest

from clients.conftest import MakeTopic
from ottla.clients.blocking import IllegalUse
from ottla.clients.columns import SentPartition
from ottla.clients.consumer.asynchronous import AsyncConsumer
from ottla.clients.consumer.blocking import Consumer
from ottla.clients.producer.asynchronous import AsyncProducer
from ottla.clients.producer.blocking import Producer
from ottla.errors import MessageTooLarge
from ottla.producing.partitioning import partition_for_key
from ottla.records.arrow import UnusableColumns
from ottla.types import TopicPartition

SECONDS = 20.0


@pytest.fixture(scope="module")
def producer(bootstrap_servers: str) -> Any:
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        yield producer


def read(servers: str, topic: str, count: int, partitions: int = 1, **options: Any) -> pa.Table:
    """The first records of a topic, from as many polls as needed."""
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", **options) as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
        return read_on(consumer, count)


def read_on(consumer: Consumer, count: int, **options: Any) -> pa.Table:
    tables: list[pa.Table] = []
    while sum(table.num_rows for table in tables) < count:
        table = consumer.poll_arrow(SECONDS, **options)
        assert table.num_rows, "nothing came in time"
        table.validate(full=True)
        tables.append(table)
    return pa.concat_tables(tables)


def rows(table: pa.Table, *names: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row[name] for name in names) for row in table.select(names).to_pylist()), key=str)


def test_a_table_comes_back_as_it_was_sent(bootstrap_servers: str, producer: Producer, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    table = pa.table(
        {
            "key": pa.array([b"a", None, b"c", b"a"], pa.binary()),
            "value": pa.array(["one", "two", None, ""], pa.string()),
            "timestamp": pa.array([5, 6, 7, 8], pa.timestamp("ms", "UTC")),
            "headers": pa.array([[("h", b"x"), ("n", None)], None, [], None], pa.map_(pa.string(), pa.binary())),
            "partition": pa.array([None, 2, None, None], pa.int32()),
        }
    )
    sent = producer.send_arrow(topic, table).result(SECONDS)
    assert sent.records == 4
    back = read(bootstrap_servers, topic, 4, 3)
    a, c = partition_for_key(b"a", 3), partition_for_key(b"c", 3)
    assert rows(back, "key", "value", "partition") == sorted(
        [(b"a", b"one", a), (None, b"two", 2), (b"c", None, c), (b"a", b"", a)], key=str
    )
    assert rows(back, "value", "headers")[-2:] == [
        (b"one", [{"key": "h", "value": b"x"}, {"key": "n", "value": None}]),
        (b"two", None),
    ]
    assert set(back["topic"].to_pylist()) == {topic}
    assert {number: part.records for number, part in sent.partitions.items()} == {
        number: back["partition"].to_pylist().count(number) for number in set(back["partition"].to_pylist())
    }


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_many_rows_keep_their_order_with_every_compression(
    bootstrap_servers: str, make_topic: MakeTopic, codec: str
) -> None:
    topic = make_topic(2)
    values = [b"%06d" % number + b"x" * (number % 50) for number in range(20_000)]
    keys = [b"k%d" % (number % 100) for number in range(20_000)]
    config = {"bootstrap.servers": bootstrap_servers, "compression.type": codec, "max.request.size": 100_000}
    with Producer(config) as producer:
        sent = producer.send_arrow(topic, {"key": keys, "value": values}).result(SECONDS)
    table = read(bootstrap_servers, topic, 20_000, 2)
    by_partition: dict[int, list[bytes]] = {0: [], 1: []}
    for partition, offset, value in zip(
        table["partition"].to_pylist(), table["offset"].to_pylist(), table["value"].to_pylist(), strict=True
    ):
        assert offset == len(by_partition[partition])
        by_partition[partition].append(value)
    for number, found in by_partition.items():
        assert found == [v for k, v in zip(keys, values, strict=True) if partition_for_key(k, 2) == number]
        assert sent.partitions[number] == SentPartition(len(found), 0, len(found) - 1)


def test_rows_without_a_key_are_spread_in_runs(
    bootstrap_servers: str, producer: Producer, make_topic: MakeTopic
) -> None:
    topic = make_topic(3)
    values = [os.urandom(1000)] * 6_000
    sent = producer.send_arrow(topic, {"value": values}).result(SECONDS)
    assert sent.records == 6_000
    assert len(sent.partitions) == 3
    assert read(bootstrap_servers, topic, 6_000, 3).num_rows == 6_000


def test_batches_that_are_too_large_for_the_topic_are_split(
    bootstrap_servers: str, producer: Producer, make_topic: MakeTopic
) -> None:
    topic = make_topic(max_message_bytes="20000")
    values = [b"%05d" % number * 20 for number in range(2_000)]
    sent = producer.send_arrow(topic, {"value": values}).result(SECONDS)
    assert sent.partitions == {0: SentPartition(2_000, 0, 1_999)}
    assert read(bootstrap_servers, topic, 2_000)["value"].to_pylist() == values


def test_a_callback_may_send_a_table_of_many_batches(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic, futures = make_topic(2), list[Any]()
    table = pa.table({"value": pa.array([b"x" * 1000] * 12_000, pa.binary())})
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        producer.partitions_for(topic)
        producer.send(topic, b"first", callback=lambda *_: futures.append(producer.send_arrow(topic, table)))
        producer.flush()
        assert len(futures[0]._sent) > 8
        assert futures[0].result(SECONDS).records == 12_000


def test_frames_of_pandas_and_polars(bootstrap_servers: str, producer: Producer, make_topic: MakeTopic) -> None:
    topic = make_topic()
    columns = {"key": ["a", "b"], "value": ["1", "2"]}
    for frame in (pandas.DataFrame(columns), polars.DataFrame(columns)):
        producer.send_arrow(topic, frame).result(SECONDS)
    table = read(bootstrap_servers, topic, 4)
    assert polars.from_arrow(table)["value"].to_list() == [b"1", b"2", b"1", b"2"]
    assert list(table.to_pandas()["key"]) == [b"a", b"b", b"a", b"b"]


def test_what_confluent_kafka_writes_is_read_and_the_reverse(
    bootstrap_servers: str, producer: Producer, make_topic: MakeTopic
) -> None:
    topic = make_topic(4)
    keys = [b"key-%d" % number for number in range(500)]
    theirs = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap_servers, "compression.type": "lz4", "partitioner": "murmur2_random"}
    )
    for key in keys:
        theirs.produce(topic, b"theirs", key, headers=[("h", b"1")])
    assert theirs.flush(SECONDS) == 0
    ours = pa.table({"key": keys, "value": pa.array([b"ours"] * 500), "headers": [[{"key": "h", "value": b"2"}]] * 500})
    producer.send_arrow(topic, ours.cast(_with_headers())).result(SECONDS)
    table = read(bootstrap_servers, topic, 1000, 4)
    where = {
        value: dict(rows(table.filter(pa.compute.equal(table["value"], value)), "key", "partition"))
        for value in (b"ours", b"theirs")
    }
    assert where[b"ours"] == where[b"theirs"]
    assert len(where[b"ours"]) == 500

    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap_servers, "group.id": uuid4().hex})
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(4)])
    seen = []
    while len(seen) < 1000:
        messages = consumer.consume(1000, SECONDS)
        assert messages
        seen += messages
    consumer.close()
    by_confluent = sorted((m.partition(), m.offset(), m.key(), m.value(), m.headers()) for m in seen)
    by_us = sorted(
        (row["partition"], row["offset"], row["key"], row["value"], [(h["key"], h["value"]) for h in row["headers"]])
        for row in table.to_pylist()
    )
    assert by_us == by_confluent


def _with_headers() -> pa.Schema:
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    return pa.schema([("key", pa.binary()), ("value", pa.binary()), ("headers", pa.list_(pair))])


def test_parts_of_a_fetch_are_handed_out_and_committed_as_far_as_they_were(
    bootstrap_servers: str, producer: Producer, make_topic: MakeTopic
) -> None:
    topic, group = make_topic(), uuid4().hex
    producer.send_arrow(topic, {"value": [b"%d" % number for number in range(1000)]}).result(SECONDS)
    options = {"bootstrap_servers": bootstrap_servers, "group_id": group, "auto_offset_reset": "earliest"}
    with Consumer(enable_auto_commit=False, **options) as consumer:
        consumer.subscribe([topic])
        table = read_on(consumer, 300, max_records=30)
        assert table["offset"].to_pylist() == list(range(300))
        partition = TopicPartition(topic, 0)
        assert consumer.position(partition) == 300
        consumer.commit()
        assert consumer.committed([partition])[partition].offset == 300  # type: ignore[union-attr]
        # One by one and as tables: each continues where the other stopped.
        assert [record.offset for record in consumer.poll(SECONDS, max_records=5)] == list(range(300, 305))
        assert read_on(consumer, 695)["offset"].to_pylist() == list(range(305, 1000))
    with Consumer(**options) as consumer:
        consumer.subscribe([topic])
        assert read_on(consumer, 700)["offset"].to_pylist() == list(range(300, 1000))


def test_an_empty_poll_is_a_table_without_rows(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    with Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(make_topic(), 0)])
        table = consumer.poll_arrow(0.05)
        assert (table.num_rows, table.num_columns) == (0, 8)
        with pytest.raises(ValueError, match="max_records must be at least 1"):
            consumer.poll_arrow(0.05, max_records=0)


def test_asyncio_clients_do_the_same(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    table = pa.table({"value": pa.array([b"x" * 100] * 50_000, pa.large_binary())})

    async def run() -> int:
        async with AsyncProducer(bootstrap_servers=bootstrap_servers, buffer_memory=2_000_000) as producer:
            sent = await (await producer.send_arrow(topic, table))
            assert sent.records == 50_000
        seen = 0
        async with AsyncConsumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
            await consumer.assign([TopicPartition(topic, number) for number in range(2)])
            while seen < 50_000:
                seen += (await consumer.poll_arrow(SECONDS)).num_rows
        return seen

    assert asyncio.run(run()) == 50_000


KEYLESS = pa.array([[], [(None, b"v")]], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"value": [b"small", b"x" * 2_000_000], "partition": [0, 0]}),
        pa.table({"value": [b"v", b"v"], "key": [b"k", b"x" * 2_000_000]}),
        pa.table({"value": pa.chunked_array([[b"x" * 500_000] * 20, [b"x" * 2_000_000] * 5])}),
        pa.table(
            {
                "value": pa.chunked_array([[b"x" * 500_000] * 20, [b"v" * 500_000] * 20]),
                "partition": pa.chunked_array([[0] * 20, [7] * 20], pa.int32()),
            }
        ),
        pa.table({"value": [b"v", b"v"], "headers": KEYLESS}),
    ],
)
def test_a_table_with_a_row_that_cannot_be_sent_is_not_sent_at_all(
    bootstrap_servers: str, producer: Producer, make_topic: MakeTopic, table: pa.Table
) -> None:
    topic = make_topic(1)
    with pytest.raises((MessageTooLarge, UnusableColumns)) as caught:
        producer.send_arrow(topic, table)
    assert not hasattr(caught.value, "sent")
    assert producer.send_arrow(topic, {"value": [b"v"]}).result(SECONDS).partitions == {0: SentPartition(1, 0, 0)}


def test_a_reader_that_fails_leaves_the_future_of_what_was_queued_before(
    bootstrap_servers: str, producer: Producer, make_topic: MakeTopic
) -> None:
    topic, schema = make_topic(1), pa.schema([("value", pa.binary())])

    def batches() -> Any:
        yield pa.record_batch([pa.array([b"a", b"b"], pa.binary())], schema)
        yield pa.record_batch([pa.array([b"c", b"x" * 2_000_000], pa.binary())], schema)

    with pytest.raises(MessageTooLarge) as caught:
        producer.send_arrow(topic, pa.RecordBatchReader.from_batches(schema, batches()))
    assert caught.value.sent.result(SECONDS).partitions == {0: SentPartition(2, 0, 1)}  # type: ignore[attr-defined]
    assert "2 rows were queued before" in caught.value.__notes__[0]

    async def run() -> Any:
        async with AsyncProducer(bootstrap_servers=bootstrap_servers) as other:
            with pytest.raises(MessageTooLarge) as caught:
                await other.send_arrow(topic, pa.RecordBatchReader.from_batches(schema, batches()))
            return await caught.value.sent  # type: ignore[attr-defined]

    assert asyncio.run(run()).partitions == {0: SentPartition(2, 2, 3)}


def test_mistakes_are_reported(bootstrap_servers: str, producer: Producer, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    with pytest.raises(UnusableColumns, match=f"to partitions of topic {topic}: record 1: there is no partition 2"):
        producer.send_arrow(topic, {"value": [b"", b""], "partition": pa.array([0, 2], pa.int32())})
    with pytest.raises(MessageTooLarge, match=r"a row for topic .* takes 2,000,0.* more than max.request.size"):
        producer.send_arrow(topic, {"value": [b"", b"x" * 2_000_000]})
    with Producer(bootstrap_servers=bootstrap_servers, partitioner_class=lambda *_: 0) as other:
        with pytest.raises(IllegalUse, match="give the rows a 'partition' column"):
            other.send_arrow(topic, {"value": [b""]})
        assert other.send_arrow(topic, {"value": [b""], "partition": [1]}).result(SECONDS).partitions.keys() == {1}
    with pytest.raises(IllegalUse, match="this producer is closed"):
        other.send_arrow(topic, {"value": [b""]})
