"""Read ranges of offsets in a task, as Arrow batches in Spark's layout.

A Python worker keeps its consumers for later tasks and micro-batches, so that their connections stay open. They do not
belong to a group.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ottla.clients.consumer.blocking import Consumer
from ottla.errors import KafkaError, NetworkException, OffsetOutOfRange, RequestTimedOut, UnknownTopicOrPartition
from ottla.spark.loss import report_loss
from ottla.spark.offsets import Range
from ottla.spark.options import ReadOptions
from ottla.spark.processes import settle
from ottla.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

#: The poll timeout. It is short, because transaction markers and compacted records give no rows: the position shows
#: whether the end of the range is reached.
POLL_SECONDS = 0.05
#: After this time without progress, check whether the records still exist.
DOUBT_SECONDS = 2.0
#: Large fetches cost less CPU time, but more memory, so the partitions of a task share these bytes. The records of a
#: range with many of them are usually small: then the default is large enough.
LARGE_FETCH_BYTES, MANY_RECORDS = 8 * 1024 * 1024, 160_000
LEAST_FETCH_BYTES = 1024 * 1024

_idle: dict[tuple[tuple[str, str], ...], list[Consumer]] = {}


@contextmanager
def _borrowed(config: dict[str, str]) -> Iterator[Consumer]:
    """Borrow an idle consumer of this process; after an error it is closed."""
    kept = _idle.setdefault(tuple(sorted(config.items())), [])
    consumer = kept.pop() if kept else Consumer(config)
    try:
        yield consumer
        consumer.assign([])
    except GeneratorExit:  # Spark has enough rows, as with LIMIT
        consumer.assign([])
        kept.append(consumer)
        raise
    except BaseException:
        consumer.close(0)
        raise
    kept.append(consumer)


def read_ranges(
    options: ReadOptions, wanted: Sequence[Range], schema: pa.Schema
) -> Generator[pa.RecordBatch, None, None]:
    """The existing records of ranges of different partitions, in order within each partition."""
    settle()
    if not any(one.size for one in wanted):
        return
    config = options.consumer_config()
    if "max.partition.fetch.bytes" not in options.kafka and max(one.size for one in wanted) < MANY_RECORDS:
        config["max.partition.fetch.bytes"] = str(_fetch_bytes(len(wanted)))
    with _borrowed(config) as consumer:
        yield from _Task(options, wanted, consumer, schema).batches()


def _fetch_bytes(partitions: int) -> int:
    """The share of a partition, as a power of two, so that later tasks can use the same consumer.

    >>> [_fetch_bytes(count) >> 20 for count in (1, 2, 3, 100)]
    [8, 4, 2, 1]
    """
    return max(LEAST_FETCH_BYTES, LARGE_FETCH_BYTES >> (partitions - 1).bit_length())


def up_to_end(options: ReadOptions, wanted: Range) -> Range:
    """The range up to the present end of its partition."""
    with _borrowed(options.consumer_config()) as consumer:
        try:
            last = consumer.end_offsets([wanted.key])[wanted.key]
        except KafkaError:  # reading explains it
            return wanted
    return replace(wanted, end=max(wanted.end, last))


class _Task:
    def __init__(self, options: ReadOptions, wanted: Sequence[Range], consumer: Consumer, schema: pa.Schema) -> None:
        self._options = options
        self._consumer = consumer
        self._schema = schema
        self._left = {one.key: one for one in wanted}
        """What is still to be read: each range starts at the position."""
        self._progress = self._doubt = time.monotonic()

    def batches(self) -> Iterator[pa.RecordBatch]:
        self._consumer.assign(list(self._left))
        for key, one in self._left.items():
            self._consumer.fetch_until(key, one.end)
            self._consumer.seek(key, one.start)
        while self._left:
            try:
                table = self._consumer.poll_arrow(POLL_SECONDS)
            except OffsetOutOfRange:
                self._look()
                continue
            except NetworkException:  # wait for the broker until the poll timeout
                self._wait()
                continue
            for batch in table.to_batches():  # each has records of one partition
                if (mine := self._before_end(batch)).num_rows:
                    yield in_layout(mine, self._schema)
            self._advance()

    def _before_end(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = batch.num_rows
        if not rows:
            return batch
        key = TopicPartition(batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py())
        one, offsets = self._left.get(key), batch.column("offset")
        if one is None:
            return batch.slice(0, 0)
        if offsets[rows - 1].as_py() < one.end:
            return batch
        low, high = 0, rows
        while low < high:
            middle = (low + high) // 2
            if offsets[middle].as_py() < one.end:
                low = middle + 1
            else:
                high = middle
        return batch.slice(0, low)

    def _advance(self) -> None:
        """Take over the positions of the consumer."""
        progress = False
        for key, one in list(self._left.items()):
            reached = self._consumer.position(key)
            if reached > one.start:
                self._continue(one, reached)
                progress = True
        if progress:
            self._progress = self._doubt = time.monotonic()
        else:
            self._wait()

    def _continue(self, one: Range, start: int) -> None:
        if start < one.end:
            self._left[one.key] = Range(one.topic, one.partition, start, one.end)
        else:
            del self._left[one.key]

    def _wait(self) -> None:
        """Nothing was received: give up after the poll timeout, and now and then check what still exists."""
        now = time.monotonic()
        if now - self._progress > self._options.poll_timeout_ms / 1000:
            one = next(iter(self._left.values()))
            raise RequestTimedOut(
                f"no record of {one.key} from offset {one.start} on was received within "
                f"{self._options.poll_timeout_ms / 1000:g} s (kafkaConsumer.pollTimeoutMs): check its broker"
            )
        if now - self._doubt > DOUBT_SECONDS:
            self._doubt = now
            self._look()

    def _look(self) -> None:
        """Check which parts of the ranges still exist, and continue there."""
        for one in list(self._left.values()):
            self._look_at(one)

    def _look_at(self, wanted: Range) -> None:
        key = wanted.key
        try:
            partitions = self._consumer.partitions_for(key.topic, timeout=10)
            if not any(one.partition == key.partition for one in partitions):
                raise UnknownTopicOrPartition
            first = self._consumer.beginning_offsets([key])[key]
            last = self._consumer.end_offsets([key])[key]
        except UnknownTopicOrPartition:
            report_loss(
                f"offsets {wanted.start} to {wanted.end} of {key} are gone: the partition was deleted", self._options
            )
            del self._left[key]
            return
        except KafkaError as error:
            if not error.retriable:
                raise
            return
        start, end = wanted.start, wanted.end
        if start < first:
            start = min(first, end)
            report_loss(
                f"offsets {wanted.start} to {start} of {key} are gone: its log starts at {first}", self._options
            )
        elif last < end:
            report_loss(f"offsets {max(start, last)} to {end} of {key} are gone: its log ends at {last}", self._options)
            end = max(start, last)
        self._continue(Range(key.topic, key.partition, wanted.start, end), start)
        if key in self._left:
            self._consumer.seek(key, start)


def in_layout(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Cast the columns to Spark's types; most need no cast and are not copied."""
    import pyarrow as pa

    columns: list[Any] = []
    for field in schema:
        column = batch.column(field.name)
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def close_idle() -> None:
    """Close the idle consumers of this process."""
    while _idle:
        for consumer in _idle.popitem()[1]:
            consumer.close(0)
