"""Write micro-batches into a table of Postgres, SQLite or DuckDB, each exactly once.

A batch goes to a staging table first, and then to the real one in a single transaction that also stores its number:

    staging table  ──INSERT, or upsert and DELETE by key──>  <table>
                   ──UPDATE───────────────────────────────>  ottla_batches (query, batch)

A batch that is repeated after a crash finds its number and does nothing. `ottla_writers` has the query of each sink,
so that a new checkpoint cannot append all rows a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.config.secrets import resolved
from ottla.spark.pipelines.columns import record_place
from ottla.spark.pipelines.databases.connections import Connection, DatabaseError, Place, opened
from ottla.spark.pipelines.databases.loading import Loaded, chunks, copy_from_tasks
from ottla.spark.pipelines.databases.names import Name
from ottla.spark.pipelines.databases.statements import Statements, has_json
from ottla.spark.pipelines.databases.tables import columns_of_table, exists, required_columns
from ottla.spark.pipelines.databases.types import kind_of
from ottla.spark.pipelines.declaration import DatabaseSink, Pipeline
from ottla.spark.pipelines.failures import WrittenError
from ottla.spark.pipelines.keyed import columns_of, is_ordered, staged
from ottla.spark.pipelines.options import as_settings
from ottla.spark.pipelines.schemas import quoted
from ottla.spark.pipelines.written import Writer, check_written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ottla.spark.pipelines.backfill.plan import Range

_NO_INDEX = ("42P10", "ON CONFLICT clause does not match", "not referenced by a UNIQUE/PRIMARY KEY")
#: Two sinks of one Postgres that start together create the tables of ottla one after the other.
_SETUP_LOCK = 7_303_014
_LOCK_TIMEOUT = "SET LOCAL lock_timeout = '60s'"


def place_of(sink: DatabaseSink, pipeline: Pipeline) -> Place:
    """Where the database is, with the contents of secrets."""
    where = sink.url or "" if sink.format == "postgres" else pipeline.path(sink.path or "")
    known = resolved({"url": where, "user": sink.user, "password": sink.password})
    options = resolved(as_settings(sink.options))
    return Place(sink.format, str(known["url"]), known["user"], known["password"], options)


class DatabaseWriter:
    """Writes the batches of one query. The constructor connects, and refuses the table of another checkpoint."""

    def __init__(self, sink: DatabaseSink, place: Place, writer: Writer) -> None:
        self._sink = sink
        self._place = place
        self._writer = writer
        self._ordered = True
        self._types: Mapping[str, str] = {}
        self._sql = Statements(sink.format, Name.of(sink.table), writer.query, {})
        with opened(place) as connection, connection.transaction():
            if exists(connection, self._sql.batches):
                self._check_batches(connection)

    def prepare(self, frame: DataFrame, *, claims: bool = True) -> None:
        """Create missing tables, and check existing ones. `claims`: no other query may append for this sink."""
        sink = self._sink
        kinds = {one.name: one.dataType.simpleString() for one in frame.schema}
        self._ordered = not sink.keys or is_ordered(sink, frame)
        self._sql = sql = Statements(
            sink.format,
            Name.of(sink.table),
            self._writer.query,
            {name: kinds[name] for name in columns_of(sink, frame)},
            sink.keys,
            sink.sequence,
            deletes=bool(sink.delete_when),
            overwrites=sink.mode == "overwrite",
        )
        sql.check_types()
        with opened(self._place) as connection, connection.transaction():
            self._begin(connection)
            if sink.format == "postgres":
                connection.rows(f"SELECT pg_advisory_xact_lock({_SETUP_LOCK})")
            found = columns_of_table(connection, sql.table)
            if found is None:
                connection.run(sql.create())
                found = columns_of_table(connection, sql.table) or {}
            sql.check_fits(found)
            sql.check_required(required_columns(connection, sql.table))
            self._types = found
            for statement in sql.create_notes():
                connection.run(statement)
            self._check_batches(connection)
            if claims:
                self._claim(connection)
            connection.run(f"DROP TABLE IF EXISTS {sql.stage}")
            connection.run(sql.create_stage())
            self._check_index(connection)

    def write(self, frame: DataFrame, batch: int) -> None:
        """The function for `foreachBatch`."""
        sql, place = self._sql, self._place
        if place.form != "postgres":
            with opened(place) as connection:
                self._write_file(connection, frame, batch)
            return
        with opened(place) as connection, connection.transaction():
            self._begin(connection)
            is_written = self._last(connection) >= batch
            if not exists(connection, sql.stage):
                connection.run(sql.create_stage())
            connection.run(f"TRUNCATE {sql.stage}")  # rows of an attempt that failed
        if is_written:
            _compute(frame)
            return
        loaded = copy_from_tasks(self._rows(frame), place, sql.stage)
        with opened(place) as connection, connection.transaction():
            self._begin(connection)
            if self._last(connection) < batch:  # otherwise, another process was faster
                self._move(connection, loaded)
                connection.run(sql.note(batch))
                connection.run(f"TRUNCATE {sql.stage}")

    def _write_file(self, connection: Connection, frame: DataFrame, batch: int) -> None:
        sql = self._sql
        with connection.transaction():
            is_written = self._last(connection) >= batch
        if is_written:
            _compute(frame)
            return
        loaded = self._stage_file(connection, frame)
        with connection.transaction():
            connection.run(sql.lock())
            if self._last(connection) < batch:
                self._move(connection, loaded)
                connection.run(sql.note(batch))

    def _stage_file(self, connection: Connection, frame: DataFrame) -> Loaded:
        sql, count = self._sql, 0
        with connection.transaction():  # only a temporary table: others can go on writing
            connection.run(sql.create_stage())
            for chunk in chunks(self._rows(frame)):
                connection.ingest(sql.stage, chunk, temporary=True)
                count += chunk.num_rows
        return Loaded((), count)

    def replace(self, frame: DataFrame, ranges: Sequence[Range]) -> None:
        """Replace the rows of these records, or merge them with keys, in one transaction without a batch number."""
        sql, place = self._sql, self._place
        if place.form != "postgres":
            with opened(place) as connection:
                loaded = self._stage_file(connection, frame)
                with connection.transaction():
                    connection.run(sql.lock())
                    self._move(connection, loaded, ranges)
            return
        try:
            loaded = copy_from_tasks(self._rows(frame), place, sql.stage)
            with opened(place) as connection, connection.transaction():
                self._begin(connection)
                self._move(connection, loaded, ranges)
        finally:
            with opened(place) as connection, connection.transaction():
                connection.run(f"DROP TABLE IF EXISTS {sql.stage}")

    def _move(self, connection: Connection, loaded: Loaded, ranges: Sequence[Range] = ()) -> None:
        """Everything that must happen together, besides the note of the batch."""
        sql, sink = self._sql, self._sink
        if sink.format == "postgres" and (sink.keys or ranges):
            connection.rows(sql.turn())
        ((count,),) = connection.rows(sql.staged(loaded.attempts))
        if count != loaded.rows:
            raise DatabaseError(
                f"table {sink.table}: {loaded.rows:,} rows were staged, and {count:,} of them are there: the database "
                "restarted in between, or another process uses the same checkpoint. Run the pipeline again"
            )
        if not self._ordered and connection.rows(sql.repeated(loaded.attempts)):
            raise DatabaseError(
                f"table {sink.table}: a micro-batch has two rows with the same keys ({', '.join(sink.keys)}), and "
                "nothing says which is newer: set sequence in the sink"
            )
        if ranges and not sink.keys:
            for statement in sql.target(self._types).removes(ranges):
                connection.run(statement)
        for statement in sql.moves(loaded.attempts, self._types):
            connection.run(statement)

    def _rows(self, frame: DataFrame) -> DataFrame:
        """The rows of a batch with types that Arrow and the database share."""
        from pyspark.sql import functions as fn

        sql, sink = self._sql, self._sink
        if sink.format == "sqlite" and sink.keys:
            frame = _without_nan(sink, frame)
        rows = staged(sink, frame)
        nested = has_json(sql.columns)
        for name in nested:
            rows = rows.withColumn(name, fn.to_json(quoted(name)))
        if sink.format == "sqlite":
            decimals = [name for name, kind in sql.columns.items() if kind_of(kind) == "decimal"]
            rows = rows.withColumns({name: fn.col(quoted(name)).cast("string") for name in decimals})
        return rows

    # ── Checks ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _begin(self, connection: Connection) -> None:
        if self._sink.format == "postgres":
            connection.run(_LOCK_TIMEOUT)
            connection.run("SET LOCAL TIME ZONE 'UTC'")

    def _last(self, connection: Connection) -> int:
        found = connection.rows(self._sql.last())
        return int(found[0][0]) if found else -1

    def _check_batches(self, connection: Connection) -> None:
        check_written(f"table {self._sink.table}", self._last(connection), self._writer)

    def _claim(self, connection: Connection) -> None:
        """Refuse to append to what the same sink wrote with another checkpoint."""
        sql, sink, writer = self._sql, self._sink, self._writer
        appends = not sink.keys and not sql.overwrites
        if (
            appends
            and connection.rows(sql.others(writer.pipeline, writer.sink))
            and connection.rows(f"SELECT 1 FROM {sql.table} LIMIT 1")
        ):
            raise WrittenError(
                f"table {sink.table} has rows that this sink wrote with another checkpoint than {writer.checkpoint}: "
                "all rows would be written a second time. Restore that checkpoint. Or, to start again from the "
                f"beginning, run DELETE FROM {sql.table} in the database, and run the pipeline again"
            )
        for statement in (*sql.claim(writer.pipeline, writer.sink), sql.note_first()):
            connection.run(statement)

    def _check_index(self, connection: Connection) -> None:
        """Try an upsert of nothing."""
        if not self._sink.keys:
            return
        try:
            connection.run(self._sql.upsert(self._types))
        except DatabaseError as error:
            if error.state in _NO_INDEX or any(sign in str(error) for sign in _NO_INDEX):
                raise DatabaseError(self._sql.no_index()) from None
            raise


def _without_nan(sink: DatabaseSink, frame: DataFrame) -> DataFrame:
    """Fail the query if SQLite would compare other values than Spark: it stores NULL for NaN."""
    kinds = {one.name.lower(): one.dataType.simpleString() for one in frame.schema}
    for role, names in (("a key", sink.keys), ("sequence", [sink.sequence] if sink.sequence else [])):
        for name in names:
            if kinds[name.lower()] in ("float", "double"):
                problem = f"{name} is NaN, which SQLite cannot store as {role}".replace("'", "")
                text = f"concat('{problem}', {record_place(frame.columns)}, '. Remove such rows with a step')"
                frame = frame.where(f"IF(isnan({quoted(name)}), CAST(raise_error({text}) AS BOOLEAN), true)")
    return frame


def _compute(frame: DataFrame) -> None:
    """Spark updates the state of dedupes and windows only if the batch is computed."""
    frame.write.format("noop").mode("overwrite").save()


def write_database(
    sink: DatabaseSink, pipeline: Pipeline, frame: DataFrame, writer: Writer | None
) -> Callable[[DataFrame, int], None]:
    """The function for `foreachBatch`; `writer` is the query, None with Spark Connect."""
    if writer is None:
        text = f"a {sink.format} sink requires a classic Spark session: it does not work with Spark Connect"
        raise DatabaseError(text)
    found = DatabaseWriter(sink, place_of(sink, pipeline), writer)
    found.prepare(frame)
    return found.write
