"""Send the records of a small micro-batch to Spark together with its plan.

A task in a Python worker costs more than a few hundred records. The process that plans a streaming query is connected
to the brokers anyway, so it reads a small batch by itself. Spark stores the rows as blocks, as it does for a
`SimpleDataSourceStreamReader`, and the task needs no Python. A worker reads the records if there are too many bytes, if
they do not arrive soon, or if Spark has lost the block.

Reading begins when the end of the batch is known, and goes on while Spark writes the end into its checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import replace
from inspect import signature
from io import BytesIO
from threading import Thread
from typing import IO, TYPE_CHECKING, Any

from ottla.errors import OttlaError
from ottla.spark.offsets import Range
from ottla.spark.options import ReadOptions
from ottla.spark.processes import stream_reader

if TYPE_CHECKING:
    import pyarrow as pa

#: Larger batches are read by workers: Spark holds the rows of a block in the memory of the driver.
MOST_BYTES = 4 * 1024 * 1024
#: After this time without records, a worker waits for them instead. It also reports errors.
PATIENCE_MS = 1000
#: What `ForkedReader.java` asks for in place of the start of a batch: the function that tasks run. In place of the end,
#: it says how many tasks run at a time.
READ_FUNCTION = "read"
_NO_PARTITIONS = 4
"""The bytes of a number, which follows the function."""
_EXPECTED = ["reader", "data_source", "schema", "max_arrow_batch_size", "infile", "outfile"]


class Prefetching:
    """Reads the small micro-batches of one query."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = replace(options, poll_timeout_ms=min(options.poll_timeout_ms, PATIENCE_MS))
        self._record_bytes = 0.0
        """The average size of the records that were read last."""
        self.is_used = False
        """Whether Spark gets records with plans."""
        self._ahead: tuple[Sequence[Range], Future[list[pa.RecordBatch] | None]] | None = None

    def begin(self, ranges: Sequence[Range], schema: pa.Schema) -> None:
        """Read ranges in the background, which `take` will probably ask for."""
        found: Future[list[pa.RecordBatch] | None] = Future()

        def run() -> None:
            try:
                found.set_result(self._read(ranges, schema))
            except BaseException as error:
                found.set_exception(error)

        self._give_up()
        self._ahead = ranges, found
        Thread(target=run, name="ottla-prefetching", daemon=True).start()

    def take(self, ranges: Sequence[Range], schema: pa.Schema) -> list[pa.RecordBatch] | None:
        """The records of the ranges; None if a worker has to read them."""
        self.is_used = True
        if self._ahead is None or self._ahead[0] != ranges:
            self._give_up()
            return self._read(ranges, schema)
        (_, found), self._ahead = self._ahead, None
        return found.result()

    def _give_up(self) -> None:
        """Wait for what was begun, because only one thread may read. Its result does not matter."""
        if self._ahead is not None:
            self._ahead[1].exception()
            self._ahead = None

    def _read(self, ranges: Sequence[Range], schema: pa.Schema) -> list[pa.RecordBatch] | None:
        if sum(one.size for one in ranges) * self._record_bytes > MOST_BYTES:
            return None
        from ottla.spark.reading import read_ranges

        found, size = [], 0
        try:
            with closing(read_ranges(self._options, ranges, schema)) as batches:
                for batch in batches:
                    found.append(batch)
                    size += batch.nbytes
                    self._record_bytes = size / sum(one.num_rows for one in found)
                    if size > MOST_BYTES:
                        return None
        except OttlaError:
            return None
        return found


def install() -> None:
    """Let Spark's process for a streaming query send records with its plans; does nothing in other processes.

    pyspark does this only for its own class of simple readers. Without this function, workers read everything.
    """
    runner: Any = stream_reader()
    if runner is None or list(signature(runner.partitions_func).parameters) != _EXPECTED:
        return

    def partitions_func(
        reader: Any, data_source: Any, schema: Any, max_arrow_batch_size: int, infile: IO[bytes], outfile: IO[bytes]
    ) -> None:
        start = json.loads(runner.utf8_deserializer.loads(infile))
        end = json.loads(runner.utf8_deserializer.loads(infile))
        if start == READ_FUNCTION:
            reader.cores = end
            return _send_read_function(runner, reader, data_source, schema, max_arrow_batch_size, outfile)
        partitions = reader.partitions(start, end)
        records = reader.prefetched(partitions)
        runner.write_int(len(partitions), outfile)
        for partition in partitions:
            runner.pickleSer._write_with_length(partition, outfile)
        if records is None:
            runner.write_int(runner.PREFETCHED_RECORDS_NOT_FOUND, outfile)
        else:
            runner.send_batch_func(iter(records), outfile, schema, max_arrow_batch_size, data_source)
        return None

    runner.partitions_func = partitions_func


def _send_read_function(
    runner: Any, reader: Any, data_source: Any, schema: Any, max_arrow_batch_size: int, outfile: IO[bytes]
) -> None:
    """Send the function that tasks run, in place of a partition."""
    from pyspark.sql.worker.plan_data_source_read import write_read_func_and_partitions

    made = BytesIO()
    write_read_func_and_partitions(
        made,
        reader=reader,
        data_source=data_source,
        schema=schema,
        max_arrow_batch_size=max_arrow_batch_size,
        binary_as_bytes=True,
    )
    runner.write_int(1, outfile)
    outfile.write(made.getvalue()[:-_NO_PARTITIONS])
    runner.write_int(runner.PREFETCHED_RECORDS_NOT_FOUND, outfile)
