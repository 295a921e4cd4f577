"""Write micro-batches into a database table, each exactly once.

Spark's JDBC writer uses one transaction per task, so a failed batch would be written in part. Here a batch goes to a
staging table first, and then to the real one in a single transaction that also stores the batch number:

    ottla_stage_<query>  ──INSERT, or upsert and DELETE by key──>  <table>
                         ──UPDATE───────────────────────────────>  ottla_batches (query, batch)

A batch that is repeated after a crash finds its number and does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ottla.spark.pipelines.declaration import JdbcSink
from ottla.spark.pipelines.jdbc.database import Database, JdbcError
from ottla.spark.pipelines.jdbc.upserts import Target
from ottla.spark.pipelines.keyed import columns_of, is_ordered, staged
from ottla.spark.pipelines.schemas import quoted as in_spark
from ottla.spark.pipelines.written import Writer, check_written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ottla.spark.pipelines.backfill.plan import Range

BATCHES = "ottla_batches"


def stage_of(table: str, query: str) -> str:
    """The staging table of a query, in the schema of the table. Two sinks of one table need two.

    >>> stage_of("shop.orders", "5c1cf2a0-6a0e-4a2f-9d6e-1f2d3c4b5a69")
    'shop.ottla_stage_5c1cf2a06a0e'
    """
    schema, dot, _ = table.rpartition(".")
    return f"{schema}{dot}ottla_stage_{query.replace('-', '')[:12]}"


class JdbcWriter:
    """Writes the batches of one query. The constructor creates missing tables, and checks existing ones."""

    def __init__(self, sink: JdbcSink, frame: DataFrame, query: str) -> None:
        self._sink = sink
        self._query = query
        self._ordered = not sink.keys or is_ordered(sink, frame)
        self._database = Database(sink, frame.sparkSession)
        self._target = self._prepared(frame)

    def write(self, frame: DataFrame, batch: int) -> None:
        """The function for `foreachBatch`."""
        with self._database.transaction() as statement:
            is_written = self._last(statement) >= batch
            statement.executeUpdate(f"DELETE FROM {self._target.stage}")
        if is_written:
            # Spark updates the state of dedupes and windows only if the batch is computed.
            frame.write.format("noop").mode("overwrite").save()
            return
        self._database.append(staged(self._sink, frame), self._target.stage)
        with self._database.transaction() as statement:
            if not self._ordered and statement.executeQuery(self._target.repeated()).next():
                raise JdbcError(
                    f"table {self._sink.table}: a micro-batch has two rows with the same keys "
                    f"({', '.join(self._sink.keys)}), and nothing says which is newer: set sequence in the sink"
                )
            if self._sink.keys:
                self._take_turn(statement)
            for sql in self._target.moves():
                statement.executeUpdate(sql)
            noted = f"UPDATE {BATCHES} SET batch = {int(batch)} WHERE query = '{self._query}'"
            if statement.executeUpdate(noted) == 0:
                statement.executeUpdate(f"INSERT INTO {BATCHES} (query, batch) VALUES ('{self._query}', {int(batch)})")

    def replace(self, frame: DataFrame, ranges: Sequence[Range]) -> None:
        """Replace the rows of these records, or merge them with keys, in one transaction without a batch number."""
        try:
            self._database.append(staged(self._sink, frame), self._target.stage)
            with self._database.transaction() as statement:
                self._take_turn(statement)
                for sql in [] if self._sink.keys else self._target.removes(ranges):
                    statement.executeUpdate(sql)
                for sql in self._target.moves():
                    statement.executeUpdate(sql)
        finally:
            with suppress(JdbcError), self._database.transaction() as statement:
                statement.executeUpdate(f"DROP TABLE {self._target.stage}")

    @property
    def _turn(self) -> str:
        """The name of a row that all writers of the table update."""
        return f"table {self._sink.table}"[:64].replace("'", "")

    def _take_turn(self, statement: Any) -> None:
        """Wait for other writers of the table: what a merge has compared must not change until it is committed."""
        statement.executeUpdate(f"UPDATE {BATCHES} SET batch = batch + 1 WHERE query = '{self._turn}'")

    def last(self) -> int:
        """The last written batch, or -1."""
        with self._database.transaction() as statement:
            return self._last(statement)

    def _last(self, statement: Any) -> int:
        found = statement.executeQuery(f"SELECT batch FROM {BATCHES} WHERE query = '{self._query}'")
        return int(found.getLong(1)) if found.next() else -1

    def _prepared(self, frame: DataFrame) -> Target:
        sink, database = self._sink, self._database
        wanted = columns_of(sink, frame)
        found = database.columns(sink.table)
        if found is None:
            database.create(sink.table, frame.select(*map(in_spark, wanted)).schema, sink.keys)
            found = database.columns(sink.table) or wanted
        self._make_batches()
        with suppress(JdbcError), database.transaction() as statement:  # it is there after the first start
            statement.executeUpdate(f"INSERT INTO {BATCHES} (query, batch) VALUES ('{self._turn}', 0)")
        target = self._target_of(wanted, found)
        with suppress(JdbcError), database.transaction() as statement:
            statement.executeUpdate(f"DROP TABLE {target.stage}")
        with database.transaction() as statement:
            statement.executeUpdate(target.make_stage())
        if sink.keys and not database.has_unique_index(target):
            raise JdbcError(
                f"table {sink.table} has no unique index on its keys, which an upsert needs. Remove rows with the same "
                f"keys, if there are any, and then run {target.make_index()}"
            )
        return target

    def _target_of(self, wanted: list[str], found: list[str]) -> Target:
        """The columns as the table writes them: databases differ in upper and lower case."""
        sink, by_name = self._sink, {name.lower(): name for name in found}
        unknown = [name for name in wanted if name.lower() not in by_name]
        if unknown:
            raise JdbcError(
                f"table {sink.table} has no column {', '.join(unknown)}: add it to the table, or leave it out with "
                f"exclude = [{', '.join(f'{chr(34)}{name}{chr(34)}' for name in unknown)}] in the sink"
            )

        def quoted(name: str) -> str:
            return self._database.quote(name if name in found else by_name[name.lower()])

        return Target(
            sink.url,
            sink.table,
            stage_of(sink.table, self._query),
            [quoted(name) for name in wanted],
            [quoted(name) for name in sink.keys],
            quoted(sink.sequence) if sink.sequence else None,
        )

    def _make_batches(self) -> None:
        if self._database.columns(BATCHES) is not None:
            return
        try:
            with self._database.transaction() as statement:
                columns = "query VARCHAR(64) NOT NULL PRIMARY KEY, batch BIGINT NOT NULL"
                statement.executeUpdate(f"CREATE TABLE {BATCHES} ({columns})")
        except JdbcError:
            if self._database.columns(BATCHES) is None:  # otherwise, another sink created it in the meantime
                raise


def write_jdbc(sink: JdbcSink, frame: DataFrame, writer: Writer | None) -> Callable[[DataFrame, int], None]:
    """The function for `foreachBatch`; `writer` is the query, None with Spark Connect."""
    if writer is None:
        raise JdbcError("a jdbc sink requires a classic Spark session: it does not work with Spark Connect")
    found = JdbcWriter(sink, frame, writer.query)
    check_written(f"table {sink.table}", found.last(), writer)
    return found.write
