"""Produce requests that no well-behaved library sends: damaged, duplicate, out of order."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterator

import crc32c
import pytest

from .conftest import MakeTopic
from .test_wire_versions import fetch, produce, topic_id
from .wire import Wire, batch

Outcome = tuple[int, int]
Append = Callable[..., Outcome]
OK, CORRUPT, BAD_ACKS, OUT_OF_ORDER, OLD_EPOCH, NOT_AUTHORIZED, BAD_RECORD = 0, 2, 21, 45, 47, 53, 87
REFUSED = -1  # the base offset of a rejected append


@pytest.fixture
def wire(bootstrap_servers: str) -> Iterator[Wire]:
    with Wire(bootstrap_servers) as connection:
        yield connection


def append(wire: Wire, topic: str, records: bytes, *, version: int = 9, acks: int = -1) -> Outcome:
    """Return the error code and the base offset."""
    answer = wire.call("produce", version, produce(topic, uuid.UUID(int=0), records, acks))
    (found,) = answer.responses[0].partition_responses
    return int(found.error_code), found.base_offset


def changed(records: bytes, position: int, new: bytes, *, sealed: bool = True) -> bytes:
    """Return the batch with other bytes at a position, and a matching CRC."""
    made = bytearray(records)
    made[position : position + len(new)] = new
    if sealed:
        made[17:21] = struct.pack(">I", crc32c.crc32c(bytes(made[21:])))
    return bytes(made)


GOOD = batch([b"first", b"second"])
SEQUENCED = batch([b"x"], producer_id=99, producer_epoch=0, base_sequence=0)
BAD_BATCHES = {
    "damaged": (changed(GOOD, len(GOOD) - 3, b"\xff", sealed=False), CORRUPT),
    "magic 0": (changed(GOOD, 16, b"\x00"), BAD_RECORD),
    "magic 1": (changed(GOOD, 16, b"\x01"), BAD_RECORD),
    "magic 3": (changed(GOOD, 16, b"\x03"), CORRUPT),
    "no batch": (b"", BAD_RECORD),
    "part of a header": (GOOD[:40], BAD_RECORD),
    "cut off": (GOOD[:-2], BAD_RECORD),
    "two batches": (GOOD + GOOD, BAD_RECORD),
    "control batch": (changed(GOOD, 22, b"\x20"), BAD_RECORD),
    "transactional, by nobody": (changed(SEQUENCED, 22, b"\x10"), NOT_AUTHORIZED),
    "more records than offsets": (changed(GOOD, 57, struct.pack(">i", 5)), BAD_RECORD),
    "more offsets than records": (changed(GOOD, 23, struct.pack(">i", 5)), BAD_RECORD),
    "base offset": (changed(GOOD, 0, struct.pack(">q", 500)), BAD_RECORD),
    "producer id without sequence": (batch([b"x"], producer_id=99, producer_epoch=0), BAD_RECORD),
}


@pytest.mark.parametrize("case", BAD_BATCHES)
def test_a_bad_batch_is_refused_and_nothing_is_written(wire: Wire, make_topic: MakeTopic, case: str) -> None:
    topic = make_topic()
    records, code = BAD_BATCHES[case]
    assert append(wire, topic, records) == (code, REFUSED)
    assert append(wire, topic, GOOD) == (OK, 0)


@pytest.mark.parametrize("attributes", [b"\x04", b"\x01"], ids=["zstd", "gzip"])
def test_a_batch_that_cannot_be_unpacked_is_refused(wire: Wire, make_topic: MakeTopic, attributes: bytes) -> None:
    """The broker must read the records: on a compacted topic they need keys."""
    topic = make_topic(cleanup_policy="compact")
    code, offset = append(wire, topic, changed(GOOD, 22, attributes))
    assert code != OK
    assert offset == REFUSED
    assert append(wire, topic, batch([b"v"], keys=[b"k"])) == (OK, 0)


def test_acks_that_do_not_exist(wire: Wire, make_topic: MakeTopic) -> None:
    assert append(wire, make_topic(), GOOD, acks=5) == (BAD_ACKS, REFUSED)


def test_acks_0_is_never_answered(wire: Wire, make_topic: MakeTopic) -> None:
    topic = make_topic()
    wire.send("produce", 9, produce(topic, uuid.UUID(int=0), GOOD, acks=0))
    assert append(wire, topic, GOOD) == (OK, 2)  # the next response belongs to the next request


def test_requests_are_answered_in_their_order(wire: Wire, make_topic: MakeTopic) -> None:
    topic = make_topic()
    sent = [wire.send("produce", 9, produce(topic, uuid.UUID(int=0), batch([b"x"]))) for _ in range(50)]
    for offset, correlation_id in enumerate(sent):
        answer = wire.receive("produce", 9, correlation_id)
        assert answer.responses[0].partition_responses[0].base_offset == offset


def test_a_fetch_that_waits_holds_back_only_its_own_connection(
    wire: Wire, bootstrap_servers: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    known = topic_id(wire, topic)
    waiting = wire.send("fetch", 13, fetch(topic, known, 0, max_wait=20_000))
    behind = wire.send("metadata", 9, {"topics": []})
    with Wire(bootstrap_servers) as other:
        assert append(other, topic, GOOD) == (OK, 0)
    answer = wire.receive("fetch", 13, waiting)
    assert answer.responses[0].partitions[0].high_watermark == 2
    wire.receive("metadata", 9, behind)


def test_refused_records_are_named(wire: Wire, make_topic: MakeTopic) -> None:
    topic = make_topic(cleanup_policy="compact")
    records = batch([b"a", b"b", b"c"], keys=[b"k", None, b"k"])
    answer = wire.call("produce", 9, produce(topic, uuid.UUID(int=0), records))
    (found,) = answer.responses[0].partition_responses
    assert int(found.error_code) == BAD_RECORD
    assert [error.batch_index for error in found.record_errors] == [1]
    assert found.record_errors[0].batch_index_error_message
    assert found.error_message


def test_the_offset_and_the_leader_epoch_are_stamped(wire: Wire, make_topic: MakeTopic) -> None:
    """The rest of the batch is stored unchanged."""
    topic = make_topic()
    append(wire, topic, batch([b"before"]))
    append(wire, topic, GOOD)
    answer = wire.call("fetch", 13, fetch(topic, topic_id(wire, topic), 1))
    stored = bytes(answer.responses[0].partitions[0].records)
    assert struct.unpack(">q", stored[:8]) == (1,)
    assert stored[8:12] + stored[16:] == GOOD[8:12] + GOOD[16:]
    assert struct.unpack(">i", stored[12:16])[0] >= 0


class Idempotent:
    """Sends batches of one producer id, valid or not."""

    def __init__(self, wire: Wire, topic: str) -> None:
        self._wire, self._topic = wire, topic
        self._id = wire.call("init_producer_id", 4, {"producer_id": -1, "producer_epoch": -1}).producer_id

    def append(self, sequence: int, count: int = 1, *, epoch: int = 0) -> Outcome:
        values = [b"%d" % number for number in range(count)]
        records = batch(values, producer_id=self._id, producer_epoch=epoch, base_sequence=sequence)
        return append(self._wire, self._topic, records)


@pytest.fixture
def producer(wire: Wire, make_topic: MakeTopic) -> Idempotent:
    return Idempotent(wire, make_topic())


def test_a_batch_sent_twice_is_written_once(producer: Idempotent) -> None:
    assert producer.append(0, 2) == (OK, 0)
    assert producer.append(0, 2) == (OK, 0)
    assert producer.append(2) == (OK, 2)
    assert producer.append(0, 2) == (OK, 0)
    assert producer.append(3) == (OK, 3)


def test_the_last_five_batches_are_remembered(producer: Idempotent) -> None:
    for sequence in range(8):
        assert producer.append(sequence) == (OK, sequence)
    assert [producer.append(sequence) for sequence in range(3, 8)] == [(OK, n) for n in range(3, 8)]
    assert producer.append(2) == (OUT_OF_ORDER, REFUSED)
    assert producer.append(8) == (OK, 8)


def test_a_gap_in_the_sequence_is_refused(producer: Idempotent) -> None:
    assert producer.append(0) == (OK, 0)
    assert producer.append(2) == (OUT_OF_ORDER, REFUSED)
    assert producer.append(1) == (OK, 1)


def test_a_batch_that_overlaps_one_before_is_refused(producer: Idempotent) -> None:
    assert producer.append(0, 3) == (OK, 0)
    assert producer.append(2, 3) == (OUT_OF_ORDER, REFUSED)
    assert producer.append(3, 3) == (OK, 3)


def test_a_new_epoch_starts_again_and_shuts_the_old_one_out(producer: Idempotent) -> None:
    assert producer.append(0) == (OK, 0)
    assert producer.append(1, epoch=1) == (OUT_OF_ORDER, REFUSED)
    assert producer.append(0, epoch=1) == (OK, 1)
    assert producer.append(1, epoch=0) == (OLD_EPOCH, REFUSED)
    assert producer.append(1, epoch=1) == (OK, 2)


def test_a_producer_the_partition_does_not_know_may_start_anywhere(producer: Idempotent) -> None:
    """Its earlier records may have been deleted by retention."""
    assert producer.append(5) == (OK, 0)
    assert producer.append(6) == (OK, 1)
    assert producer.append(8) == (OUT_OF_ORDER, REFUSED)


def test_sequence_numbers_wrap_around(producer: Idempotent) -> None:
    last = 2**31 - 1
    assert producer.append(last - 1) == (OK, 0)
    assert producer.append(last) == (OK, 1)
    assert producer.append(0) == (OK, 2)
    assert producer.append(last) == (OK, 1)
    assert producer.append(1) == (OK, 3)


def test_a_batch_may_wrap_around_inside(producer: Idempotent) -> None:
    assert producer.append(2**31 - 2, 4) == (OK, 0)
    assert producer.append(2**31 - 2, 4) == (OK, 0)
    assert producer.append(2) == (OK, 4)
