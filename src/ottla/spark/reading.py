"""Read a range of offsets of one partition in a task, as Arrow batches in Spark's layout.

A Python worker keeps its consumers for later tasks and micro-batches, so that their connections stay open. They do not
belong to a group.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
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
#: Fetch sizes by number of records: bytes beyond the end of a range are wasted.
FETCH_BYTES = ((10_000, 1024 * 1024), (40_000, 2 * 1024 * 1024), (160_000, 4 * 1024 * 1024))

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


def read_range(options: ReadOptions, wanted: Range, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The existing records of a range, in order."""
    settle()
    config = options.consumer_config()
    if "max.partition.fetch.bytes" not in options.kafka:
        fitting = [size for records, size in FETCH_BYTES if wanted.size < records]
        if fitting:
            config["max.partition.fetch.bytes"] = str(fitting[0])
    with _borrowed(config) as consumer:
        yield from _Task(options, wanted, consumer, schema).batches()


class _Task:
    def __init__(self, options: ReadOptions, wanted: Range, consumer: Consumer, schema: pa.Schema) -> None:
        self._options = options
        self._range = wanted
        self._consumer = consumer
        self._schema = schema
        self._position = wanted.start
        self._progress = self._doubt = time.monotonic()

    @property
    def _key(self) -> TopicPartition:
        return self._range.key

    def batches(self) -> Iterator[pa.RecordBatch]:
        self._consumer.assign([self._key])
        self._consumer.fetch_until(self._key, self._range.end)
        self._consumer.seek(self._key, self._position)
        while self._position < self._range.end:
            try:
                table = self._consumer.poll_arrow(POLL_SECONDS)
            except OffsetOutOfRange:
                self._look()
                continue
            except NetworkException:  # wait for the broker until the poll timeout
                self._advance(self._position)
                continue
            for batch in table.to_batches():
                if (mine := self._before_end(batch)).num_rows:
                    yield in_layout(mine, self._schema)
            self._advance(self._consumer.position(self._key))

    def _before_end(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        offsets = batch.column("offset")
        rows = batch.num_rows
        if not rows or offsets[rows - 1].as_py() < self._range.end:
            return batch
        low, high = 0, rows
        while low < high:
            middle = (low + high) // 2
            if offsets[middle].as_py() < self._range.end:
                low = middle + 1
            else:
                high = middle
        return batch.slice(0, low)

    def _advance(self, reached: int) -> None:
        now = time.monotonic()
        if reached > self._position:
            self._position = reached
            self._progress = self._doubt = now
        elif now - self._progress > self._options.poll_timeout_ms / 1000:
            raise RequestTimedOut(
                f"no record of {self._key} from offset {self._position} on was received within "
                f"{self._options.poll_timeout_ms / 1000:g} s (kafkaConsumer.pollTimeoutMs): check its broker"
            )
        elif now - self._doubt > DOUBT_SECONDS:
            self._doubt = now
            self._look()

    def _look(self) -> None:
        """Check which part of the range still exists, and continue there."""
        key, end = self._key, self._range.end
        try:
            if not any(one.partition == key.partition for one in self._consumer.partitions_for(key.topic, timeout=10)):
                raise UnknownTopicOrPartition
            first = self._consumer.beginning_offsets([key])[key]
            last = self._consumer.end_offsets([key])[key]
        except UnknownTopicOrPartition:
            report_loss(
                f"offsets {self._position} to {end} of {key} are gone: the partition was deleted", self._options
            )
            self._position = end
            return
        except KafkaError as error:
            if not error.retriable:
                raise
            return
        if self._position < first:
            gone = min(first, end)
            report_loss(
                f"offsets {self._position} to {gone} of {key} are gone: its log starts at {first}", self._options
            )
            self._position = gone
        elif last < end:
            report_loss(
                f"offsets {max(self._position, last)} to {end} of {key} are gone: its log ends at {last}", self._options
            )
            if self._position >= last:
                self._position = end
            else:
                self._range = Range(key.topic, key.partition, self._range.start, last)
        if self._position < self._range.end:
            self._consumer.seek(key, self._position)


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
