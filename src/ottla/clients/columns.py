"""Implements `send_arrow` and `poll_arrow`: whole Arrow batches to record batches, and back.

The blocking and the asyncio clients share these parts: `Outgoing` yields payloads, and each client queues them in its
own way; `Incoming` builds a table from undecoded fetches. Serializers, interceptors and custom partitioners do not
apply to columns, since there is no record to call them with.
"""

from __future__ import annotations

import asyncio
import random
import time
from array import array
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.clients import habits
from ottla.clients.blocking import IllegalUse
from ottla.config.producer import ProducerConfig
from ottla.consuming.buffer import Batches, RawFetch
from ottla.errors import CorruptMessage, MessageTooLarge
from ottla.producing.values import EncodedBatch
from ottla.records import CorruptBatch
from ottla.records.arrow import MOST_ROWS, BatchMaker, UnusableColumns, Writable, batches_of, writable
from ottla.records.builder import RecordFuture
from ottla.records.columns import NO_LIMIT, BatchReader, ColumnSink, EncodedColumns, PartitionRows
from ottla.records.header import BATCH_OVERHEAD
from ottla.types import Millis, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

#: How many batches should fit into buffer.memory, or encoding and sending would take turns.
_BATCHES_IN_MEMORY = 8
#: Encoding pauses when it is so many batches ahead. Batches that no longer fit the processor's cache are read from
#: memory again, for their CRC and for the socket, which takes longer than encoding them.
_BATCHES_AHEAD = 8
#: That pause in seconds: a network that is slower than this fills all of buffer.memory.
_MOMENT = 0.002


# ── Sending ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class SentPartition(NamedTuple):
    """The records of a table that went to one partition. Offsets are -1 with acks=0."""

    records: int
    first_offset: int
    last_offset: int


class SentColumns(NamedTuple):
    """The result of sending a table."""

    topic: str
    records: int
    partitions: dict[int, SentPartition]


class ColumnsFuture:
    """The future of a table that was sent: of all of its batches together."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.records = 0
        self._sent: list[tuple[RecordFuture, RecordFuture]] = []

    def add(self, payload: EncodedBatch, first: RecordFuture) -> None:
        """Add a queued batch. It may be split later, so its last record needs its own future."""
        last = RecordFuture(first.batch, payload.records - 1, payload.base_timestamp, -1, -1)
        self._sent.append((first, last))
        self.records += payload.records

    def pace(self) -> None:
        """Pause before the next batch is encoded, if many are in flight."""
        if (behind := self._behind()) is not None:
            with suppress(TimeoutError):
                behind.exception(_MOMENT)

    async def pace_async(self) -> None:
        """Do the same in a coroutine."""
        if (behind := self._behind()) is not None:
            with suppress(Exception):
                async with asyncio.timeout(_MOMENT):
                    await behind

    def _behind(self) -> RecordFuture | None:
        """The record to wait for; its outcome is reported with the others'."""
        if len(self._sent) < _BATCHES_AHEAD or self._sent[-_BATCHES_AHEAD][1].done():
            return None
        return self._sent[-_BATCHES_AHEAD][1]

    def done(self) -> bool:
        """Whether every record was acknowledged or given up."""
        return all(first.done() and last.done() for first, last in self._sent)

    def result(self, timeout: float | None = None) -> SentColumns:
        """Return counts and offsets by partition once everything is acknowledged; raises why a record failed.

        TimeoutError after `timeout` seconds; the records may still be written later.
        """
        end = None if timeout is None else time.monotonic() + timeout
        for ends in self._sent:
            for future in ends:
                future.result(None if end is None else max(end - time.monotonic(), 0))
        return self._result()

    get = result

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Why a record could not be written, or None if all were."""
        end = None if timeout is None else time.monotonic() + timeout
        for ends in self._sent:
            for future in ends:
                error = future.exception(None if end is None else max(end - time.monotonic(), 0))
                if error is not None:
                    return error
        return None

    def __await__(self) -> Generator[Any, Any, SentColumns]:
        for first, last in self._sent:
            yield from first.__await__()
            yield from last.__await__()
        return self._result()

    def _result(self) -> SentColumns:
        partitions: dict[int, SentPartition] = {}
        for first, last in self._sent:
            start, end, rows = first.result(), last.result(), last.index + 1
            known = partitions.get(start.partition, SentPartition(0, start.offset, end.offset))
            partitions[start.partition] = SentPartition(known.records + rows, known.first_offset, end.offset)
        return SentColumns(self.topic, self.records, partitions)


class Outgoing:
    """Encodes the tables of one producer."""

    def __init__(self, config: ProducerConfig, has_partitioner: bool) -> None:
        self._has_partitioner = has_partitioner
        self._hash_keys = not config.partitioner_ignore_keys
        self._max_size = min(config.max_request_size, config.buffer_memory)
        self._limit = min(config.max_request_size, max(config.buffer_memory // _BATCHES_IN_MEMORY, BATCH_OVERHEAD + 1))

    def payloads(
        self, topic: str, data: Any, partitions: int, available: Sequence[int], *, now: Millis
    ) -> Iterator[EncodedBatch]:
        """Encode a table lazily for a topic with so many partitions.

        Rows without a key and without a partition go in runs to the `available` ones. `now` is for rows without a
        timestamp. A table is checked before its first payload is returned, so it is sent completely or not at all;
        for a reader this holds for each batch.
        """
        spread = list(available) or list(range(partitions))
        random.shuffle(spread)
        turn = shared_turn = 0
        warned = False
        batches = batches_of(data)
        for group in [batches] if isinstance(batches, list) else ([batch] for batch in batches):
            plans: list[tuple[Writable, PartitionRows | None]] = []
            for batch in group:
                rows = writable(batch)
                if rows.source.rows:
                    shared = self._shared(topic, rows, partitions, spread, shared_turn)
                    shared_turn = shared_turn if shared is None else shared.turn
                    self._check_rows(rows, topic, now=now)
                    if not warned and any(map(habits.is_in_seconds, rows.given_times)):
                        warned = True
                        # This generator runs in send_arrow, which the user's code has called.
                        habits.warn_of_seconds("multiply the column 'timestamp' by 1000", stacklevel=4)
                    plans.append((rows, shared))
            for rows, shared in plans:
                if shared is not None:
                    yield from self._by_partition(topic, rows, shared, now=now)
                    continue
                for encoded in self._encode(rows, None, 0, rows.source.rows, topic, now=now):
                    yield self._payload(topic, spread[turn], encoded)
                    turn = (turn + 1) % len(spread)

    def _shared(
        self, topic: str, rows: Writable, partitions: int, spread: Sequence[int], turn: int
    ) -> PartitionRows | None:
        """Which rows go to which partition; None if it does not matter."""
        if self._has_partitioner and (rows.partition is None or rows.partition.nulls):
            raise self._unusable_partitioner()
        if rows.partition is None and not (rows.has_keys and self._hash_keys):
            return None
        try:
            return rows.source.partition_rows(
                rows.partition, partitions, array("i", spread).tobytes(), turn, self._limit, self._hash_keys
            )
        except ValueError as error:
            raise UnusableColumns(f"the rows cannot be assigned to partitions of topic {topic}: {error}") from None

    def _check_rows(self, rows: Writable, topic: str, *, now: Millis) -> None:
        """Raise what encoding would raise. Rows are encoded for that only if a check of the columns is not enough."""
        if rows.may_be_refused(self._max_size):
            for _ in self._encode(rows, None, 0, rows.source.rows, topic, now=now):
                pass

    def _by_partition(
        self, topic: str, rows: Writable, shared: PartitionRows, *, now: Millis
    ) -> Iterator[EncodedBatch]:
        """Payloads of the partitions in turns, so that all of their leaders are busy."""
        ways = [
            (number, self._encode(rows, shared.order, start, end, topic, now=now))
            for number, (start, end) in enumerate(zip(shared.starts, shared.starts[1:], strict=False))
            if start < end
        ]
        while ways:
            left = []
            for number, way in ways:
                if (encoded := next(way, None)) is not None:
                    yield self._payload(topic, number, encoded)
                    left.append((number, way))
            ways = left

    def _encode(
        self, rows: Writable, order: bytearray | None, start: int, stop: int, topic: str, *, now: Millis
    ) -> Iterator[EncodedColumns]:
        while start < stop:
            try:
                encoded = rows.source.encode(order, start, stop, self._limit, now)
            except ValueError as error:
                raise UnusableColumns(f"the rows cannot be written to topic {topic}: {error}") from None
            if len(encoded.payload) > self._max_size:
                raise MessageTooLarge(
                    f"a row for topic {topic} takes {len(encoded.payload):,} bytes, which is more than "
                    f"max.request.size or buffer.memory ({self._max_size:,}): make it smaller, or raise the limit"
                )
            yield encoded
            start = encoded.next_row

    def _payload(self, topic: str, partition: int, encoded: EncodedColumns) -> EncodedBatch:
        key = TopicPartition(topic, partition)
        times = encoded.base_timestamp, encoded.max_timestamp
        return EncodedBatch(key, encoded.payload, encoded.rows, *times, framed=True)

    def _unusable_partitioner(self) -> IllegalUse:
        return IllegalUse(
            "this producer has a partitioner.class, which cannot be called for whole columns: "
            "give the rows a 'partition' column, or use a producer without it"
        )


def wall_clock() -> Millis:
    return time.time_ns() // 1_000_000


# ── Receiving ────────────────────────────────────────────────────────────────────────────────────────────────────────

PutBack = Callable[[list[tuple[RawFetch, Batches, int]]], None]
"""Returns the batches of fetches that were not read, with the offsets to continue from."""


class Incoming:
    """Builds the tables of one consumer."""

    def __init__(self) -> None:
        self._maker = BatchMaker()

    @staticmethod
    def limit(max_records: int | None) -> int:
        """The limit for the buffer; 0 for everything."""
        if max_records is not None and max_records < 1:
            raise ValueError(f"max_records must be at least 1, not {max_records}")
        return max_records or 0

    def table(self, fetched: Sequence[RawFetch], max_records: int | None, put_back: PutBack) -> pa.Table:
        """Return the records of these fetches, at most `max_records`; the others are put back.

        Damaged batches are put back too. CorruptMessage is raised if there is nothing before them.
        """
        batches: list[pa.RecordBatch] = []
        left = NO_LIMIT if max_records is None else max_records
        problem: CorruptMessage | None = None
        unread: list[tuple[RawFetch, Batches, int]] = []
        for raw in fetched:
            reader = BatchReader(raw.data, raw.batches, raw.position, raw.unpacked)
            while left and problem is None and not reader.done:
                sink = ColumnSink(len(raw.data))
                try:
                    reader.read(sink, min(left, MOST_ROWS))
                except CorruptBatch as error:
                    problem = _corrupt(raw.topic_partition, reader.next_offset, error)
                if sink.rows:
                    batches.append(self._maker.batch(sink.finish(), *_names(raw.topic_partition)))
                    left -= sink.rows
            if not reader.done:
                unread.append((raw, list(reader.rest), reader.next_offset))
        if unread:
            put_back(unread)
        if problem is not None and not batches:
            raise problem
        return self._maker.table(batches)


def _names(key: TopicPartition) -> tuple[str, int]:
    return key.topic, key.partition


def _corrupt(key: TopicPartition, offset: int, error: CorruptBatch) -> CorruptMessage:
    return CorruptMessage(f"partition {key} at offset {offset}: {error.reason}. Seek past it to continue without it")
