"""Start positions and times of records: timestamps, offsets by time, seek, positions, resets."""

from __future__ import annotations

import time

import pytest

from .clients.base import TP, Client, ClientError, Code, Message
from .conftest import MakeTopic
from .waiting import take

HOUR = 3_600_000


def now() -> int:
    return int(time.time() * 1000)


def test_the_producers_time_is_kept(client: Client, make_topic: MakeTopic) -> None:
    topic, then = make_topic(), now() - HOUR
    delivered = client.producer().send(topic, b"value", timestamp=then).result()
    assert delivered.timestamp == then
    consumer = client.consumer()
    consumer.assign({TP(topic, 0): None})
    (message,) = take(consumer, 1)
    assert (message.timestamp, message.log_append_time) == (then, False)


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_the_brokers_time_on_a_topic_with_log_append_time(
    client: Client, make_topic: MakeTopic, compression: str | None
) -> None:
    topic, before = make_topic(message_timestamp_type="LogAppendTime"), now()
    producer = client.producer(compression=compression, linger_ms=20)
    deliveries = [producer.send(topic, b"value", timestamp=before - HOUR) for _ in range(3)]
    producer.flush()
    told = [delivery.result().timestamp for delivery in deliveries]
    after = now()
    consumer = client.consumer()
    consumer.assign({TP(topic, 0): None})
    messages = take(consumer, 3)
    assert all(message.log_append_time for message in messages)
    assert all(before - 1 <= message.timestamp <= after + 1 for message in messages)
    assert [message.timestamp for message in messages] == told


def test_a_time_too_far_in_the_future_is_refused(client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic(message_timestamp_after_max_ms="60000")
    producer = client.producer()
    with pytest.raises(ClientError) as refused:
        producer.send(topic, b"value", timestamp=now() + HOUR).result()
    assert refused.value.code == Code.INVALID_TIMESTAMP
    assert client.producer().send(topic, b"value", timestamp=now()).result().offset == 0


def test_a_time_too_far_in_the_past_is_refused(client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic(message_timestamp_before_max_ms="60000")
    with pytest.raises(ClientError) as refused:
        client.producer().send(topic, b"value", timestamp=now() - HOUR).result()
    assert refused.value.code == Code.INVALID_TIMESTAMP


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_offsets_for_times(client: Client, make_topic: MakeTopic, compression: str | None) -> None:
    """Three batches of ten records, ten seconds between records."""
    topic, start = make_topic(2), now() - HOUR
    producer = client.producer(compression=compression, linger_ms=20)
    for batch in range(3):
        sends = [
            producer.send(topic, b"%d" % n, timestamp=start + n * 10_000) for n in range(batch * 10, batch * 10 + 10)
        ]
        producer.flush()
        assert [send.result().offset for send in sends] == list(range(batch * 10, batch * 10 + 10))
    consumer, full, empty = client.consumer(), TP(topic, 0), TP(topic, 1)

    def found(when: int) -> int | None:
        return consumer.offsets_for_times({full: when})[full]

    assert found(start - 1) == 0
    assert found(start) == 0
    assert found(start + 1) == 1
    assert found(start + 150_000) == 15
    assert found(start + 149_999) == 15
    assert found(start + 290_000) == 29
    assert found(start + 290_001) is None
    both = consumer.offsets_for_times({full: start + 205_000, empty: start})
    assert both == {full: 21, empty: None}


def test_offsets_for_times_when_times_go_back(client: Client, make_topic: MakeTopic) -> None:
    """The result is the first record in the log at or after the time."""
    topic, start = make_topic(), now() - HOUR
    producer = client.producer()
    for seconds in (50, 10, 40, 20, 90, 30):
        producer.send(topic, b"value", timestamp=start + seconds * 1000).result()
    consumer, tp = client.consumer(), TP(topic, 0)
    wanted = {5: 0, 50: 0, 51: 4, 90: 4, 91: None}
    assert {s: consumer.offsets_for_times({tp: start + s * 1000})[tp] for s in wanted} == wanted


@pytest.mark.needs("list_offsets")
def test_the_record_with_the_maximum_timestamp(client: Client, make_topic: MakeTopic) -> None:
    topic, start = make_topic(), now() - HOUR
    admin, tp = client.admin(), TP(topic, 0)
    assert admin.list_offset(tp, "max_timestamp")[0] == -1
    producer = client.producer()
    for seconds in (10, 90, 40):
        producer.send(topic, b"value", timestamp=start + seconds * 1000).result()
    assert admin.list_offset(tp, "max_timestamp") == (1, start + 90_000)
    assert admin.list_offset(tp, "earliest")[0] == 0
    assert admin.list_offset(tp, "latest")[0] == 3


@pytest.mark.parametrize("compression", [None, "snappy"])
def test_reading_from_the_middle_of_a_batch(client: Client, make_topic: MakeTopic, compression: str | None) -> None:
    topic = make_topic()
    client.producer(compression=compression, linger_ms=100).send_all(topic, [b"%d" % n for n in range(100)])
    consumer = client.consumer()
    consumer.assign({TP(topic, 0): 57})
    messages = take(consumer, 43)
    assert [message.offset for message in messages] == list(range(57, 100))
    assert messages[0].value == b"57"


def test_seek_back_and_forth(client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic()
    client.producer().send_all(topic, [b"%d" % n for n in range(20)])
    consumer, tp = client.consumer(fetch_max_wait_ms=50), TP(topic, 0)
    consumer.assign({tp: None})
    assert take(consumer, 20)[-1].offset == 19
    assert consumer.position(tp) == 20
    consumer.seek(tp, 5)
    assert take(consumer, 15)[0].offset == 5
    consumer.seek(tp, 19)
    assert [message.offset for message in take(consumer, 1)] == [19]


def test_a_paused_partition_waits_and_the_others_do_not(client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    producer = client.producer()
    consumer, paused, other = client.consumer(fetch_max_wait_ms=50), TP(topic, 0), TP(topic, 1)
    consumer.assign({paused: 0, other: 0})
    producer.send(topic, b"before", partition=0).result()
    assert [message.value for message in take(consumer, 1)] == [b"before"]
    consumer.pause(paused)
    producer.send(topic, b"held back", partition=0).result()
    producer.send(topic, b"goes on", partition=1).result()
    assert [message.value for message in take(consumer, 1)] == [b"goes on"]
    consumer.resume(paused)
    assert [message.value for message in take(consumer, 1)] == [b"held back"]


def test_the_latest_offset_sees_only_what_comes_after(client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic()
    producer = client.producer()
    producer.send_all(topic, [b"old"] * 5)
    consumer, tp = client.consumer(offset_reset="latest"), TP(topic, 0)
    assert consumer.watermarks(tp) == (0, 5)
    consumer.assign({tp: 5})
    producer.send(topic, b"new").result()
    assert [message.value for message in take(consumer, 1)] == [b"new"]


@pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
@pytest.mark.parametrize("offset", [2, 1_000])
def test_an_offset_out_of_range(client: Client, make_topic: MakeTopic, reset: str, offset: int) -> None:
    """Offset 2 was deleted and offset 1,000 never existed; `auto.offset.reset` decides."""
    topic = make_topic()
    tp = TP(topic, 0)
    producer = client.producer()
    producer.send_all(topic, [b"%d" % n for n in range(10)])
    assert client.admin().delete_records({tp: 4}) == {tp: 4}
    consumer = client.consumer(offset_reset=reset, fetch_max_wait_ms=50)
    consumer.assign({tp: offset})
    if reset == "none":
        with pytest.raises(ClientError) as refused:
            take(consumer, 1)
        assert refused.value.code == Code.OFFSET_OUT_OF_RANGE
    elif reset == "earliest":
        assert [message.offset for message in take(consumer, 6)] == [4, 5, 6, 7, 8, 9]
    else:
        messages: list[Message] = []
        while not messages:  # the first of these comes after the reset to the end
            producer.send(topic, b"new").result()
            messages = consumer.poll(0.2)
        assert {message.value for message in messages} == {b"new"}
