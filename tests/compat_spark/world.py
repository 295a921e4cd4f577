"""What the cases share: a session with both data sources, topics with records, and short ways to use them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

import ottla
from ottla.types import TopicPartition

START = 1_700_000_000_000
SECOND = 1000
#: Long enough for a loaded machine.
PATIENCE = 120


@dataclass
class World:
    """`format` is the data source under test."""

    spark: SparkSession
    servers: str
    directory: Path
    format: str
    admin: ottla.Admin
    producer: ottla.Producer
    shared: list[str]
    """The topics that this case has filled so far; both data sources read the same ones."""
    used: int = 0

    # ── topics ───────────────────────────────────────────────────────────────────────────────────────────────────

    def topic(self, partitions: int = 1) -> str:
        name = f"guide-{uuid4().hex[:10]}"
        self.admin.create_topics(ottla.NewTopic(name, partitions, configs={"retention.ms": "-1"}))
        return name

    def filled(self, *counts: int) -> str:
        """A topic with so many records in each partition; one second between two records."""
        if self.used == len(self.shared):
            self.shared.append(self.own(*counts))
        self.used += 1
        return self.shared[self.used - 1]

    def own(self, *counts: int) -> str:
        """The same for a case that changes the topic."""
        name = self.topic(len(counts))
        for partition, count in enumerate(counts):
            self.fill(name, count, partition=partition)
        return name

    def fill(self, name: str, count: int, *, partition: int = 0, first: int = 0) -> None:
        sent = [
            self.producer.send(
                name,
                f"value-{number}".encode(),
                key=None if number % 3 == 0 else f"key-{number}".encode(),
                partition=partition,
                timestamp=START + number * SECOND,
                headers=[("h", str(number).encode()), ("empty", None)] if number % 2 else None,
            )
            for number in range(first, first + count)
        ]
        for future in sent:
            future.result(30)

    def delete_before(self, name: str, offset: int) -> None:
        self.admin.delete_records({TopicPartition(name, 0): offset})

    def content(self, name: str) -> list[tuple[Any, ...]]:
        """The records of a topic, read without Spark."""
        found = []
        with ottla.Consumer(bootstrap_servers=self.servers) as consumer:
            keys = [TopicPartition(name, one.partition) for one in consumer.partitions_for(name)]
            consumer.assign(keys)
            consumer.seek_to_beginning()
            ends = consumer.end_offsets(keys)
            while any(consumer.position(key) < ends[key] for key in keys):
                for record in consumer.poll(1):
                    headers = [(one[0], one[1]) for one in record.headers]
                    found.append((record.partition, record.key, record.value, headers))
        return sorted(found, key=repr)

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    def options(self, subscribe: str | None = None, /, **options: Any) -> dict[str, str]:
        """Underscores become dots; a dict becomes JSON."""
        given = {name.replace("_", "."): _text(value) for name, value in options.items()}
        return {"kafka.bootstrap.servers": self.servers, **({"subscribe": subscribe} if subscribe else {}), **given}

    def read(self, subscribe: str | None = None, /, **options: Any) -> DataFrame:
        return self.spark.read.format(self.format).options(**self.options(subscribe, **options)).load()

    def rows(self, subscribe: str | None = None, /, **options: Any) -> list[tuple[Any, ...]]:
        return rows_of(self.read(subscribe, **options))

    def stream(self, subscribe: str | None = None, /, **options: Any) -> DataFrame:
        return self.spark.readStream.format(self.format).options(**self.options(subscribe, **options)).load()

    def batches(
        self,
        subscribe: str | None = None,
        /,
        trigger: Mapping[str, Any] | None = None,
        checkpoint: Path | None = None,
        frame: DataFrame | None = None,
        **options: Any,
    ) -> list[list[tuple[Any, ...]]]:
        """The rows of each micro-batch of a stream that ends by itself."""
        found: list[list[tuple[Any, ...]]] = []
        frame = self.stream(subscribe, **options) if frame is None else frame
        writer = frame.writeStream.foreachBatch(lambda batch, _: found.append(rows_of(batch)))
        writer = writer.option("checkpointLocation", str(checkpoint or self.checkpoint()))
        query = writer.trigger(**(trigger or {"availableNow": True})).start()
        try:
            assert query.awaitTermination(PATIENCE), "the query did not end"
        finally:
            query.stop()
        return [batch for batch in found if batch]

    def checkpoint(self) -> Path:
        return self.directory / uuid4().hex

    @contextmanager
    def running(self, frame: DataFrame, **trigger: Any) -> Iterator[Any]:
        """A query on `frame` into nothing."""
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(self.checkpoint()))
        query = (writer.trigger(**trigger) if trigger else writer).start()
        try:
            yield query
        finally:
            query.stop()

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def write(self, frame: DataFrame, mode: str | None = "append", **options: Any) -> None:
        writer = frame.write.format(self.format).options(**self.options(**options))
        (writer.mode(mode) if mode else writer).save()

    def write_stream(self, frame: DataFrame, mode: str = "append", **options: Any) -> None:
        writer = frame.writeStream.format(self.format).options(**self.options(**options)).outputMode(mode)
        query = writer.option("checkpointLocation", str(self.checkpoint())).trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(PATIENCE), "the query did not end"
        finally:
            query.stop()

    def fails(self, work: Callable[[], object]) -> str:
        """ "refused", or what it returned."""
        try:
            return f"accepted: {work()!r}"
        except (AssertionError, TimeoutError):
            raise
        except Exception:
            return "refused"


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict) else str(value)


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    found = []
    for row in frame.collect():
        values = row.asDict(recursive=True)
        found.append(tuple(bytes(one) if isinstance(one, bytearray) else one for one in values.values()))
    return sorted(found, key=repr)
