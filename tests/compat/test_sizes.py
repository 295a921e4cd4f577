"""Large and too large messages, and fetches smaller than their records."""

from __future__ import annotations

import os

import pytest

from .clients.base import TP, Client, ClientError, Code
from .conftest import MakeTopic
from .waiting import take

BATCH_OVERHEAD = 61


def batch_size(value_length: int) -> int:
    """Return the size of a batch with one record: a null key, no headers and a value of this length.

    Batch header, then: length of the record, attributes, timestamp delta, offset delta, length of the key (-1), length
    of the value, the value, number of headers.
    """
    record = 1 + 1 + 1 + 1 + _varint_size(value_length) + value_length + 1
    return BATCH_OVERHEAD + _varint_size(record) + record


def _varint_size(number: int) -> int:
    return max(1, -(-(number << 1).bit_length() // 7))


def value_for_batch_of(size: int) -> bytes:
    length = next(length for length in range(size, 0, -1) if batch_size(length) == size)
    return os.urandom(length)


def test_a_batch_of_exactly_the_limit_and_one_byte_more(client: Client, make_topic: MakeTopic) -> None:
    limit = 200_000
    topic = make_topic(max_message_bytes=str(limit))
    producer = client.producer()
    largest = value_for_batch_of(limit)
    assert producer.send(topic, largest).result().offset == 0
    with pytest.raises(ClientError) as refused:
        producer.send(topic, value_for_batch_of(limit + 1)).result()
    assert refused.value.code == Code.MESSAGE_TOO_LARGE
    consumer = client.consumer()
    consumer.assign({TP(topic, 0): None})
    assert [message.value for message in take(consumer, 1)] == [largest]
    assert consumer.watermarks(TP(topic, 0)) == (0, 1)


def test_a_producer_goes_on_after_a_message_too_large(client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic()
    producer = client.producer(max_request_bytes=5_000_000, idempotent=False)
    assert producer.send(topic, b"before").result().offset == 0
    with pytest.raises(ClientError) as refused:
        producer.send(topic, os.urandom(1_500_000)).result()
    assert refused.value.code == Code.MESSAGE_TOO_LARGE
    assert producer.send(topic, b"after").result().offset == 1


def test_the_limit_can_be_raised_while_a_producer_runs(client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic(max_message_bytes="10000")
    producer = client.producer(idempotent=False)
    with pytest.raises(ClientError):
        producer.send(topic, os.urandom(20_000)).result()
    client.admin().alter_topic_configs(topic, {"max.message.bytes": "50000"})
    assert producer.send(topic, os.urandom(20_000)).result().offset == 0


@pytest.mark.parametrize("compression", [None, "lz4"])
def test_a_message_larger_than_the_fetch_limits_is_delivered(
    client: Client, make_topic: MakeTopic, compression: str | None
) -> None:
    topic = make_topic(max_message_bytes="6000000")
    values = [b"small", os.urandom(5_000_000), b"small again", os.urandom(900_000)]
    producer = client.producer(max_request_bytes=8_000_000, compression=compression)
    for value in values:
        producer.send(topic, value).result()
    consumer = client.consumer(max_partition_fetch_bytes=10_000, fetch_max_bytes=1_000_000)
    consumer.assign({TP(topic, 0): None})
    assert [message.value for message in take(consumer, 4)] == values


def test_small_fetches_move_through_many_batches(client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    producer = client.producer(batch_bytes=2_000, linger_ms=5)
    for partition in (0, 1):
        producer.send_all(topic, [b"%04d" % n + b"x" * 200 for n in range(200)], partition)
    consumer = client.consumer(max_partition_fetch_bytes=3_000)
    consumer.assign({TP(topic, 0): None, TP(topic, 1): None})
    messages = take(consumer, 400)
    for partition in (0, 1):
        assert [m.offset for m in messages if m.partition == partition] == list(range(200))


def test_fetches_of_much_data(client: Client, make_topic: MakeTopic) -> None:
    """Read 20 MB at once, like a consumer that starts at the beginning."""
    topic, value = make_topic(4), os.urandom(10_000)
    producer = client.producer(batch_bytes=500_000, linger_ms=20)
    sends = [producer.send(topic, value, partition=n % 4) for n in range(2_000)]
    producer.flush()
    assert max(send.result().offset or 0 for send in sends) == 499
    consumer = client.consumer(max_partition_fetch_bytes=5_000_000)
    consumer.assign({TP(topic, partition): None for partition in range(4)})
    assert {message.value for message in take(consumer, 2_000)} == {value}
