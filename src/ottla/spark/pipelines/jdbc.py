"""Write micro-batches into a database table, each exactly once.

Spark's JDBC writer uses one transaction per task, so a failed batch would be written in part. Here a batch goes to a
staging table first, and then to the real one in a single transaction that also stores the batch number:

    <table>_stage  ──DELETE rows with the same keys, INSERT──>  <table>
                   ──UPDATE──────────────────────────────────>  ottla_batches (query, batch)

A batch that is repeated after a crash finds its number and does nothing. The SQL works in all databases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ottla.spark.pipelines.checkpoints import query_id
from ottla.spark.pipelines.declaration import JdbcSink
from ottla.spark.pipelines.options import as_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BATCHES = "ottla_batches"


def write_jdbc(sink: JdbcSink, checkpoint: str) -> Callable[[DataFrame, int], None]:
    """The function for `foreachBatch`."""
    writer: list[_Writer] = []

    def write(frame: DataFrame, batch: int) -> None:
        if not writer:
            writer.append(_Writer(sink, frame, query_id(frame.sparkSession, checkpoint)))
        writer[0].write(frame, batch)

    return write


def stage_of(table: str, query: str) -> str:
    """The staging table of a query, in the schema of the table. Its own name would be cut by some databases.

    >>> stage_of("shop.orders", "5c1cf2a0-6a0e-4a2f-9d6e-1f2d3c4b5a69")
    'shop.ottla_stage_5c1cf2a06a0e'
    """
    schema, dot, _ = table.rpartition(".")
    return f"{schema}{dot}ottla_stage_{query.replace('-', '')[:12]}"


def statements(table: str, stage: str, columns: Sequence[str], keys: Sequence[str]) -> list[str]:
    """The SQL that moves the rows; names must be quoted."""
    found = []
    if keys:
        same = " AND ".join(f"{stage}.{key} = {table}.{key}" for key in keys)
        found.append(f"DELETE FROM {table} WHERE EXISTS (SELECT 1 FROM {stage} WHERE {same})")
    names = ", ".join(columns)
    return [*found, f"INSERT INTO {table} ({names}) SELECT {names} FROM {stage}"]


class _Writer:
    def __init__(self, sink: JdbcSink, frame: DataFrame, query: str) -> None:
        spark = frame.sparkSession
        if not hasattr(spark, "_jsparkSession"):
            raise RuntimeError("a jdbc sink requires a classic Spark session: it does not work with Spark Connect")
        self._sink = sink
        self._query = query
        self._jvm: Any = spark._jvm
        self._options = {
            **as_settings(sink.options),
            "url": sink.url,
            **{name: value for name in ("driver", "user", "password") if (value := getattr(sink, name))},
        }
        self._stage = f"{sink.table}_stage"
        quote = self._jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(sink.url).quoteIdentifier
        self._statements = statements(
            sink.table, self._stage, list(map(quote, frame.columns)), list(map(quote, sink.keys))
        )
        self._save(frame.limit(0), sink.table, "append")  # creates the table if missing
        self._make_batches()

    def write(self, frame: DataFrame, batch: int) -> None:
        if self._last() >= batch:
            # Spark updates the state of dedupes and windows only if the batch is computed.
            frame.write.format("noop").mode("overwrite").save()
            return
        self._save(frame, self._stage, "overwrite")
        connection = self._connect()
        try:
            connection.setAutoCommit(False)
            statement = connection.createStatement()
            for sql in self._statements:
                statement.executeUpdate(sql)
            noted = f"UPDATE {BATCHES} SET batch = {int(batch)} WHERE query = '{self._query}'"
            if statement.executeUpdate(noted) == 0:
                statement.executeUpdate(f"INSERT INTO {BATCHES} (query, batch) VALUES ('{self._query}', {int(batch)})")
            connection.commit()
        except BaseException:
            with suppress(Exception):
                connection.rollback()
            raise
        finally:
            connection.close()

    def _last(self) -> int:
        """The last written batch, or -1."""
        connection = self._connect()
        try:
            found = connection.createStatement().executeQuery(
                f"SELECT batch FROM {BATCHES} WHERE query = '{self._query}'"
            )
            return int(found.getLong(1)) if found.next() else -1
        finally:
            connection.close()

    def _make_batches(self) -> None:
        connection = self._connect()
        try:
            connection.setAutoCommit(True)
            if not connection.getMetaData().getTables(None, None, BATCHES, None).next() and (
                not connection.getMetaData().getTables(None, None, BATCHES.upper(), None).next()
            ):
                columns = "query VARCHAR(64) NOT NULL PRIMARY KEY, batch BIGINT NOT NULL"
                connection.createStatement().executeUpdate(f"CREATE TABLE {BATCHES} ({columns})")
        finally:
            connection.close()

    def _save(self, frame: DataFrame, table: str, mode: str) -> None:
        frame.write.format("jdbc").options(**self._options, dbtable=table).mode(mode).save()

    def _connect(self) -> Any:
        given = {**self._options, "dbtable": self._sink.table}
        scala = self._jvm.PythonUtils.toScalaMap(given)
        options = self._jvm.org.apache.spark.sql.execution.datasources.jdbc.JDBCOptions(scala)
        dialect = self._jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(self._sink.url)
        return dialect.createConnectionFactory(options).apply(-1)
