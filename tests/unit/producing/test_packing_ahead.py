"""Batches that are compressed ahead: the same bytes, whoever compressed them, in every outcome."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from producer_context import P0, P1, Context

from ottla.errors import RecordListTooLarge
from ottla.producing.accumulator import Accumulator, Appended
from ottla.producing.batch import Batch, pack
from ottla.producing.values import EncodedBatch, View
from ottla.records import Compression, decode_batch, read_header
from ottla.records.builder import Lanes
from ottla.records.compression import Packer
from ottla.records.header import BATCH_OVERHEAD, check_batch
from ottla.types import TopicPartition

LZ4 = Compression.LZ4


@pytest.fixture(params=["thread", "no-thread"])
def packer(request: pytest.FixtureRequest) -> Iterator[Packer]:
    made = Packer()
    thread = threading.Thread(target=made.run, daemon=True)
    if request.param == "thread":
        thread.start()
    yield made
    made.stop()
    if request.param == "thread":
        thread.join(30)
        assert not thread.is_alive()


class Noted:
    """A packer that only records its calls."""

    def __init__(self) -> None:
        self.given: list[tuple[bytes, int, int]] = []

    def begin(self, buffer: bytearray, start: int, end: int) -> Any:
        self.given.append((bytes(buffer[start:end]), start, end))
        return Packer().begin(buffer, start, end)


def filled(number: int = 0, size: int = 20_000, *, noise: bool = False) -> Batch:
    batch = Batch(TopicPartition("t", number), bytearray(size), memory=size, now=0)
    dice = random.Random(number)
    while batch.append(5, b"key %d" % number, dice.randbytes(300) if noise else b"value %d" % batch.count) >= 0:
        pass
    batch.close()
    return batch


@pytest.mark.parametrize("noise", [False, True])
def test_the_bytes_are_the_same_as_without(packer: Packer, noise: bool) -> None:
    for _ in range(20):
        ahead, plain = ([filled(number, noise=noise) for number in range(5)] for _ in range(2))
        for batch in ahead[:4]:
            batch.pack_ahead(packer)
            batch.pack_ahead(packer)
        ahead[4].append(5, None, b"one that is not full")
        pack(ahead[:3], LZ4, None)
        assert [bytes(each.sealed(LZ4, None)) for each in ahead] == [bytes(each.sealed(LZ4, None)) for each in plain]


def test_a_batch_can_be_renumbered_and_its_records_decoded(packer: Packer) -> None:
    batch, records = filled(), filled().records()
    batch.pack_ahead(packer)
    first = bytes(batch.sealed(LZ4, None))
    batch.number(7, 1, 3)
    second = bytes(batch.sealed(LZ4, None))
    check_batch(second, 0, read_header(second))
    assert (read_header(first).producer_id, read_header(second).producer_id) == (-1, 7)
    assert decode_batch(first) == decode_batch(second) == records
    assert batch.records() == records
    batch.pack_ahead(packer)
    assert bytes(batch.sealed(LZ4, None)) != b""


def test_a_released_buffer_is_not_used_by_the_batch(packer: Packer) -> None:
    for _ in range(50):
        batch = filled()
        batch.pack_ahead(packer)
        buffer = batch.release()
        assert buffer is not None
        buffer[:] = b"x" * 20_001  # it could not grow while somebody holds it
        batch.pack_ahead(packer)
        assert buffer == b"x" * 20_001


def accumulator(packer: Any, batch_size: int = 200) -> Accumulator:
    return Accumulator(
        batch_size=batch_size,
        linger_ms=5,
        buffer_memory=100_000,
        delivery_timeout_ms=1_000,
        backoff=lambda attempt: 100,
        packer=packer,
    )


def test_what_is_full_is_handed_over_once_and_what_is_not_is_not() -> None:
    noted = Noted()
    machine = accumulator(noted)
    machine.add_topic(Lanes("t", 2))
    first = machine.append(P0, 0, None, b"1" * 80, (), now=0)
    assert isinstance(first, Appended)
    assert noted.given == []
    second = machine.append(P0, 0, None, b"2" * 80, (), now=0)
    assert isinstance(second, Appended)
    assert not second.batch.closed
    assert [start for _, start, _ in noted.given] == [BATCH_OVERHEAD]
    assert b"1" * 80 in noted.given[0][0]
    machine.full(first.batch)
    assert len(noted.given) == 1
    assert machine.begin_batch("t", 0, now=0) is not None
    assert b"2" * 80 in noted.given[1][0]
    machine.append_batch(EncodedBatch(P1, b"3" * 50, 1, 0, 0), now=0)
    machine.append_batch(EncodedBatch(P1, bytearray(BATCH_OVERHEAD) + b"4" * 50, 1, 0, 0, framed=True), now=0)
    assert [content for content, _, _ in noted.given[2:]] == [b"3" * 50, b"4" * 50]
    machine.begin_flush()
    assert len(machine.drain(0, View({P0: 0, P1: 0}), 10_000, lambda batch: False, now=0)) == 2
    assert len(noted.given) == 4


def test_a_batch_that_is_too_large_is_split_though_it_was_packed(packer: Packer) -> None:
    context = Context()
    context.accumulator = context.sender.accumulator = accumulator(packer, batch_size=2_000)
    values = [b"%d " % number * 20 for number in range(50)]
    for value in values:
        context.accumulator.append(P0, 0, None, value, (), now=0)
    request = context.request()
    (batch,) = request.batches
    batch.sealed(LZ4, None)
    assert context.reject(request, RecordListTooLarge()) == []
    halves: list[Any] = [part for _, part in batch.parts or ()]
    assert [each.count for each in halves] == [batch.count // 2, batch.count - batch.count // 2]
    assert [record.value for half in halves for record in decode_batch(half.sealed(LZ4, None))] == values[: batch.count]


def test_batches_that_expire_are_let_go(packer: Packer) -> None:
    machine = accumulator(packer, batch_size=2_000)
    for number in range(300):
        machine.append(P0, 0, None, b"%d " % number * 20, (), now=0)
    late = machine.expired(now=1_000)
    for batch in late:
        machine.finished(batch)
    assert machine.pool.available == 100_000
    assert all(batch.buffer is None for batch in late)
