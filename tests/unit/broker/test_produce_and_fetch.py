"""Produce and Fetch on the wire: rejections, long polls, limits, sessions, damaged input."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import ottla
from ottla import errors
from ottla.protocol.apis import ApiKey
from ottla.records import Compression, decode_batch, scan
from unit.broker.wire import Wire, batch, fetch_request


@pytest.fixture
def topic(wire: Wire, request: pytest.FixtureRequest) -> str:
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)[:200]
    wire.create_topic(name)
    return name


def flipped(data: bytes, position: int) -> bytes:
    changed = bytearray(data)
    changed[position] ^= 1
    return bytes(changed)


def values(records: bytes) -> list[bytes | None]:
    return [
        record.value
        for position, _ in scan(records, 0, len(records)).batches
        for record in decode_batch(records, position)
    ]


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (flipped(batch(b"value"), 17), 2),
        (batch(b"value") + b"\0" * 20, 87),
        (b"x" * 40, 2),
        (batch(b"x" * 2_000_000), 10),
        (None, 87),
    ],
    ids=["crc field", "trailing", "noise", "large", "null"],
)
def test_bad_records_are_refused_with_kafkas_code_and_nothing_is_written(
    wire: Wire, topic: str, records: bytes, code: int
) -> None:
    answer = wire.produce(topic, records)
    assert answer.error_code == code
    assert answer.base_offset == -1
    assert answer.error_message
    assert wire.produce(topic, batch(b"good")).base_offset == 0


def test_acks_0_has_no_answer_and_an_error_closes_the_connection(broker: ottla.Broker, wire: Wire, topic: str) -> None:
    def message(name: str) -> dict[str, Any]:
        data = [{"name": name, "partition_data": [{"index": 0, "records": batch(b"x")}]}]
        return {"transactional_id": None, "acks": 0, "timeout": 1, "topic_data": data}

    with Wire(broker.bootstrap_servers) as other:
        other.send(0, 9, message(topic))
        assert values(other.fetch(topic, 0).records) == [b"x"]
        other.send(0, 9, message("no-such-topic"))
        assert other.is_closed()
    assert wire.fetch(topic, 0).high_watermark == 1


def test_unknown_partitions_have_their_code(wire: Wire, topic: str) -> None:
    assert wire.produce(topic, batch(b"x"), partition=7).error_code == 3
    assert wire.produce("no-such-topic", batch(b"x")).error_code == 3
    assert wire.fetch("no-such-topic", 0).error_code == 3
    assert wire.fetch(topic, 0, partition=-1).error_code == 3


def test_a_long_poll_ends_when_the_topic_is_deleted(broker: ottla.Broker, wire: Wire, topic: str) -> None:
    wire.send(1, 12, fetch_request(topic, 0, max_wait=60_000))
    with Wire(broker.bootstrap_servers) as other:
        other.call(20, 6, {"topics": [{"name": topic, "topic_id": None}], "timeout": 1})
    assert wire.receive(1, 12).responses[0].partitions[0].error_code == 3


@pytest.mark.parametrize("compression", list(Compression))
def test_a_compressed_batch_is_stored_as_it_was_sent(wire: Wire, topic: str, compression: Compression) -> None:
    sent = batch(b"x" * 1000, b"y" * 1000, compression=compression)
    wire.produce(topic, sent)
    stored = wire.fetch(topic, 0).records
    # The broker sets the base offset and the leader epoch. The rest is unchanged.
    assert stored[8:12] + stored[16:] == sent[8:12] + sent[16:]


def test_producer_ids_are_different_after_a_crash(tmp_path: Path) -> None:
    seen = set()
    for _ in range(3):
        with ottla.Broker(tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
            for _ in range(3):
                seen.add(wire.call(22, 4, {"transactional_id": None, "transaction_timeout": 1}).producer_id)
    assert len(seen) == 9


def test_a_batch_outside_of_a_transaction_needs_none_even_from_a_transactional_producer(wire: Wire, topic: str) -> None:
    data = [{"name": topic, "partition_data": [{"index": 0, "records": batch(b"x")}]}]
    message = {"transactional_id": "t", "acks": -1, "timeout": 1, "topic_data": data}
    assert wire.call(0, 9, message).responses[0].partition_responses[0].error_code == 0


def test_flushes_before_the_acknowledgement_are_shared(broker: ottla.Broker, wire: Wire) -> None:
    wire.create_topic("flushed", flush_messages="1")
    failed: list[int] = []

    def produce() -> None:
        with Wire(broker.bootstrap_servers) as own:
            failed.extend(code for _ in range(20) if (code := own.produce("flushed", batch(b"x")).error_code))

    threads = [threading.Thread(target=produce) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert wire.fetch("flushed", 0).high_watermark == 80


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
def test_nobody_but_the_broker_writes_internal_topics(wire: Wire, name: str) -> None:
    for key_type in (0, 1):  # The first FindCoordinator request creates the topic.
        wire.call(ApiKey.FIND_COORDINATOR, 3, {"key": "somebody", "key_type": key_type})
    answer = wire.produce(name, batch(b"not for you"))
    assert answer.error_code == errors.InvalidTopicException.code
    assert answer.base_offset == -1
