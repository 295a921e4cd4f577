"""A connection to the database of a jdbc sink, through Spark's JVM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ottla.errors import OttlaError
from ottla.spark.pipelines.declaration import JdbcSink
from ottla.spark.pipelines.jdbc.drivers import driver_of, missing, spark_url
from ottla.spark.pipelines.jdbc.upserts import ON_CONFLICT, ON_DUPLICATE, Target
from ottla.spark.pipelines.options import as_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_NO_DRIVER = ("No suitable driver", "ClassNotFoundException")
_NO_INDEX, _NO_INDEX_IN_SQLITE = "42P10", "ON CONFLICT clause does not match"
#: The length of text columns in a key, where unlimited text cannot be indexed.
KEY_LENGTH = 255


class JdbcError(OttlaError):
    """A database rejected something; `state` is its SQLSTATE, if known."""

    def __init__(self, message: str, state: str = "") -> None:
        super().__init__(message)
        self.state = state


class Database:
    def __init__(self, sink: JdbcSink, spark: SparkSession) -> None:
        session: Any = spark
        self._jvm, self._java_session = session._jvm, session._jsparkSession
        self._sink = sink
        known = driver_of(sink.url)
        self._driver = sink.driver or (known.name if known else None)
        given = {"driver": self._driver, "user": sink.user, "password": sink.password}
        self._options = {
            **as_settings(sink.options),
            "url": spark_url(sink.url),
            **{name: value for name, value in given.items() if value},
        }
        self._dialect = self._jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(spark_url(sink.url))

    def quote(self, name: str) -> str:
        return str(self._dialect.quoteIdentifier(name))

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """A statement; what it does is committed at the end, and rolled back after an error."""
        from py4j.protocol import Py4JJavaError

        try:
            connection = self._open()
            try:
                connection.setAutoCommit(False)
                yield connection.createStatement()
                connection.commit()
            except BaseException:
                with suppress(Exception):
                    connection.rollback()
                raise
            finally:
                connection.close()
        except Py4JJavaError as error:
            raise self._told(error.java_exception) from None

    def _told(self, error: Any) -> JdbcError:
        text = str(error)
        if any(sign in text for sign in _NO_DRIVER):
            return JdbcError(missing(self._sink.url, self._driver))
        state = error.getSQLState() if hasattr(error, "getSQLState") and "SQL" in text.partition(":")[0] else ""
        return JdbcError(f"table {self._sink.table}: {text.partition(': ')[2] or text}", str(state))

    def _open(self) -> Any:
        return self._dialect.createConnectionFactory(self._given(self._sink.table)).apply(-1)

    def _given(self, table: str) -> Any:
        options = self._jvm.PythonUtils.toScalaMap({**self._options, "dbtable": table})
        return self._jvm.org.apache.spark.sql.execution.datasources.jdbc.JdbcOptionsInWrite(options)

    def append(self, frame: DataFrame, table: str) -> None:
        """Append rows, in one transaction per task."""
        if self._sink.url.startswith("jdbc:sqlite:"):
            frame = frame.coalesce(1)  # SQLite has one writer at a time
        frame.write.format("jdbc").options(**self._options, dbtable=table).mode("append").save()

    # ── Tables ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def columns(self, table: str) -> list[str] | None:
        """The column names of a table; None if it does not exist."""
        try:
            with self.transaction() as statement:
                found = statement.executeQuery(f"SELECT * FROM {table} WHERE 1 = 0").getMetaData()
                return [str(found.getColumnName(number + 1)) for number in range(found.getColumnCount())]
        except JdbcError:
            with self.transaction():  # a failure to connect is not a missing table
                return None

    def create(self, table: str, schema: StructType, keys: Sequence[str]) -> None:
        """Create a table with Spark's types, and the keys as its primary key."""
        declared = self._java_session.parseDataType(_with_keys(schema, keys).json())
        types = self._jvm.scala.Option.apply(self._key_types(schema, keys))
        utils = self._jvm.org.apache.spark.sql.execution.datasources.jdbc.JdbcUtils
        columns = utils.schemaString(self._dialect, declared, False, types)
        primary = f", PRIMARY KEY ({', '.join(map(self.quote, keys))})" if keys else ""
        more = self._options.get("createTableOptions", "")
        with self.transaction() as statement:
            statement.executeUpdate(f"CREATE TABLE {table} ({columns}{primary}) {more}".rstrip())

    def _key_types(self, schema: StructType, keys: Sequence[str]) -> str | None:
        """Text columns of a key need a length, except where text can be indexed."""
        given = self._options.get("createTableColumnTypes")
        if given or self._sink.url.startswith(ON_CONFLICT):
            return given
        names = [*keys, *([self._sink.sequence] if self._sink.sequence and keys else [])]
        texts = [name for name in dict.fromkeys(names) if schema[name].dataType.typeName() == "string"]
        return ", ".join(f"`{name}` VARCHAR({KEY_LENGTH})" for name in texts) or None

    def has_unique_index(self, target: Target) -> bool:
        """Whether the keys have a unique index, without which an upsert would insert duplicates."""
        if target.url.startswith(ON_CONFLICT):
            return self._accepts(target.upsert())
        wanted = {name.strip('"`[]').lower() for name in target.keys}
        return any({name.lower() for name in index} == wanted for index in self._unique_indexes(target))

    def _accepts(self, upsert: str) -> bool:
        """Try an upsert of nothing."""
        try:
            with self.transaction() as statement:
                statement.executeUpdate(upsert)
        except JdbcError as error:
            if error.state == _NO_INDEX or _NO_INDEX_IN_SQLITE in str(error):
                return False
            raise
        return True

    def _unique_indexes(self, target: Target) -> list[set[str]]:
        found: dict[str, set[str]] = {}
        with self.transaction() as statement:
            if target.url.startswith(ON_DUPLICATE):
                rows = statement.executeQuery(f"SHOW INDEX FROM {target.table} WHERE Non_unique = 0")
                index, column = "Key_name", "Column_name"
            else:
                connection = statement.getConnection()
                schema, _, name = target.table.rpartition(".")
                fold = str.upper if connection.getMetaData().storesUpperCaseIdentifiers() else str
                where = fold(schema) if schema else connection.getSchema()
                rows = connection.getMetaData().getIndexInfo(None, where, fold(name), True, True)
                index, column = "INDEX_NAME", "COLUMN_NAME"
            while rows.next():
                found.setdefault(str(rows.getString(index)), set()).add(str(rows.getString(column)))
        return list(found.values())


def _with_keys(schema: StructType, keys: Sequence[str]) -> StructType:
    """The schema with keys that are not null."""
    from pyspark.sql.types import StructField, StructType

    return StructType(
        [StructField(one.name, one.dataType, one.nullable and one.name not in keys, one.metadata) for one in schema]
    )
