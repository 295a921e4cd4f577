"""Produce and Fetch on the wire: rejections, long polls, limits, sessions, damaged input."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ottla
from ottla import errors
from ottla.protocol.apis import ApiKey
from ottla.records import Compression, Record, decode_batch, encode_batch, scan
from unit.broker.wire import Wire, batch, fetch_request


@pytest.fixture(scope="module")
def broker() -> Iterator[ottla.Broker]:
    with ottla.Broker() as broker:
        yield broker


@pytest.fixture
def wire(broker: ottla.Broker) -> Iterator[Wire]:
    with Wire(broker.bootstrap_servers) as wire:
        yield wire


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


def test_offsets_are_given_in_order(wire: Wire, topic: str) -> None:
    assert [wire.produce(topic, batch(b"a", b"b")).base_offset for _ in range(3)] == [0, 2, 4]
    assert values(wire.fetch(topic, 0).records) == [b"a", b"b"] * 3
    assert wire.fetch(topic, 0).high_watermark == 6


OLD_FORMAT = struct.pack(">qi", 0, 14) + struct.pack(">ibbii", 0, 1, 0, -1, -1)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (flipped(batch(b"value"), 70), 2),
        (flipped(batch(b"value"), 17), 2),
        (batch(b"value")[:-3], 87),
        (batch(b"value") + b"\0" * 20, 87),
        (batch(b"value") * 2, 87),
        (b"", 87),
        (b"x" * 40, 2),
        (OLD_FORMAT, 87),
        (batch(b"control", control=True), 87),
        (batch(b"transactional", transactional=True), 53),
        (batch(b"x" * 2_000_000), 10),
        (None, 87),
    ],
    ids=[
        "crc",
        "crc field",
        "cut",
        "trailing",
        "two",
        "empty",
        "noise",
        "magic 1",
        "control",
        "transactional",
        "large",
        "null",
    ],
)
def test_bad_records_are_refused_with_kafkas_code_and_nothing_is_written(
    wire: Wire, topic: str, records: bytes, code: int
) -> None:
    answer = wire.produce(topic, records)
    assert answer.error_code == code
    assert answer.base_offset == -1
    assert answer.error_message
    assert wire.produce(topic, batch(b"good")).base_offset == 0


@pytest.mark.parametrize(("acks", "code"), [(1, 0), (-1, 0), (2, 21), (-2, 21)])
def test_acks_are_checked(wire: Wire, topic: str, acks: int, code: int) -> None:
    assert wire.produce(topic, batch(b"x"), acks=acks).error_code == code


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


@pytest.mark.parametrize("offset", [-5, 3, 10**15])
def test_offsets_outside_of_the_log_are_out_of_range(wire: Wire, topic: str, offset: int) -> None:
    wire.produce(topic, batch(b"a", b"b"))
    assert wire.fetch(topic, offset).error_code == 1
    assert wire.fetch(topic, 2).error_code == 0


def test_an_offset_in_the_middle_of_a_batch_brings_the_whole_batch(wire: Wire, topic: str) -> None:
    wire.produce(topic, batch(b"a", b"b", b"c"))
    wire.produce(topic, batch(b"d"))
    assert values(wire.fetch(topic, 1).records) == [b"a", b"b", b"c", b"d"]


def test_a_first_batch_larger_than_the_limit_is_still_delivered(wire: Wire, topic: str) -> None:
    wire.produce(topic, batch(b"x" * 10_000))
    wire.produce(topic, batch(b"y" * 10_000))
    assert values(wire.fetch(topic, 0, max_bytes=100).records) == [b"x" * 10_000]


def test_the_limit_of_the_whole_answer_holds_for_all_partitions_together(wire: Wire, topic: str) -> None:
    wire.call(37, 3, {"topics": [{"name": topic, "count": 4, "assignments": None}], "timeout": 1})
    for partition in range(4):
        wire.produce(topic, batch(b"x" * 10_000), partition=partition)
    partitions = [{"partition": p, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for p in range(4)]
    request = fetch_request(topic, 0) | {"topics": [{"topic": topic, "partitions": partitions}], "max_bytes": 25_000}
    sizes = [len(p.records) for p in wire.call(1, 12, request).responses[0].partitions]
    assert 10_000 < sum(sizes) <= 25_000


def test_a_long_poll_ends_when_a_record_arrives(broker: ottla.Broker, wire: Wire, topic: str) -> None:
    wire.send(1, 12, fetch_request(topic, 0, max_wait=60_000))
    with Wire(broker.bootstrap_servers) as other:
        other.produce(topic, batch(b"at last"))
    assert values(wire.receive(1, 12).responses[0].partitions[0].records) == [b"at last"]


def test_a_long_poll_waits_for_the_bytes_it_asked_for(broker: ottla.Broker, wire: Wire, topic: str) -> None:
    one = batch(b"x" * 100)
    wire.send(1, 12, fetch_request(topic, 0, max_wait=60_000, min_bytes=3 * len(one)))
    with Wire(broker.bootstrap_servers) as other:
        for _ in range(3):
            other.produce(topic, one)
    assert len(wire.receive(1, 12).responses[0].partitions[0].records) == 3 * len(one)


def test_a_long_poll_without_data_ends_empty(wire: Wire, topic: str) -> None:
    answer = wire.fetch(topic, 0, max_wait=30)
    assert (answer.error_code, answer.records) == (0, b"")


def test_a_long_poll_ends_when_the_topic_is_deleted(broker: ottla.Broker, wire: Wire, topic: str) -> None:
    wire.send(1, 12, fetch_request(topic, 0, max_wait=60_000))
    with Wire(broker.bootstrap_servers) as other:
        other.call(20, 6, {"topics": [{"name": topic, "topic_id": None}], "timeout": 1})
    assert wire.receive(1, 12).responses[0].partitions[0].error_code == 3


def test_a_session_tells_only_what_is_new(wire: Wire, topic: str) -> None:
    wire.produce(topic, batch(b"a"))
    first = wire.call(1, 12, fetch_request(topic, 0, session_id=0, session_epoch=0))
    assert first.session_id
    advance = fetch_request(topic, 1, session_id=first.session_id, session_epoch=1)
    assert wire.call(1, 12, advance).responses == []
    wire.produce(topic, batch(b"b"))
    again = {"max_wait": 0, "min_bytes": 1, "topics": [], "forgotten_topics_data": []}
    third = wire.call(1, 12, again | {"session_id": first.session_id, "session_epoch": 2})
    assert values(third.responses[0].partitions[0].records) == [b"b"]
    assert wire.call(1, 12, again | {"session_id": first.session_id, "session_epoch": 9}).error_code == 71
    assert wire.call(1, 12, again | {"session_id": 12345, "session_epoch": 2}).error_code == 70


@pytest.mark.parametrize("compression", list(Compression))
def test_a_compressed_batch_is_stored_as_it_was_sent(wire: Wire, topic: str, compression: Compression) -> None:
    sent = batch(b"x" * 1000, b"y" * 1000, compression=compression)
    wire.produce(topic, sent)
    stored = wire.fetch(topic, 0).records
    # The broker sets the base offset and the leader epoch. The rest is unchanged.
    assert stored[8:12] + stored[16:] == sent[8:12] + sent[16:]


def test_idempotent_batches_are_written_once_and_in_order(wire: Wire, topic: str) -> None:
    producer_id = wire.call(22, 4, {"transactional_id": None, "transaction_timeout": 1}).producer_id

    def send(sequence: int, epoch: int = 0) -> tuple[int, int]:
        data = batch(b"a", b"b", producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        answer = wire.produce(topic, data)
        return answer.error_code, answer.base_offset

    assert send(0) == (0, 0)
    assert send(2) == (0, 2)
    assert send(0) == (0, 0)
    assert send(6) == (45, -1)
    assert send(4) == (0, 4)
    assert send(0, epoch=1) == (0, 6)
    assert send(6, epoch=0)[0] == 47
    assert wire.fetch(topic, 0).high_watermark == 8


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


def test_log_append_time_is_the_brokers(wire: Wire) -> None:
    wire.create_topic("append-time", message_timestamp_type="LogAppendTime")
    answer = wire.produce("append-time", batch(b"x", timestamp=5))
    assert answer.log_append_time > 1_700_000_000_000
    record = decode_batch(wire.fetch("append-time", 0).records)[0]
    assert record.timestamp == answer.log_append_time


def test_a_compacted_topic_needs_keys(wire: Wire) -> None:
    wire.create_topic("compacted", cleanup_policy="compact")
    answer = wire.produce("compacted", batch(b"no key"))
    assert answer.error_code == 87
    keyed = encode_batch([Record(0, 0, b"k", b"v")])
    assert wire.produce("compacted", keyed).error_code == 0


def test_leader_epochs_are_compared(wire: Wire, topic: str) -> None:
    request = fetch_request(topic, 0)
    for epoch, code in ((0, 0), (5, 75)):
        request["topics"][0]["partitions"][0]["current_leader_epoch"] = epoch
        assert wire.call(1, 12, request).responses[0].partitions[0].error_code == code


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
