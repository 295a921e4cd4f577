"""What a database knows of its tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.spark.pipelines.databases.connections import Connection, Place, opened
from ottla.spark.pipelines.databases.names import Name, literal, quote

if TYPE_CHECKING:
    import pyarrow as pa


def exists(connection: Connection, table: Name) -> bool:
    """Whether there is a table of this name."""
    return columns_of_table(connection, table) is not None


def columns_of_table(connection: Connection, table: Name) -> dict[str, str] | None:
    """The columns with their types; None if there is no such table. A type with own values is ``enum name``."""
    found = connection.rows(_COLUMNS[connection.place.form](table))
    return {str(name): str(kind) for name, kind in found} or None


def required_columns(connection: Connection, table: Name) -> list[str]:
    """The columns that every new row must have a value for: NOT NULL, and the database has none of its own."""
    form = connection.place.form
    if form == "postgres":
        sql = (
            f"SELECT attname FROM pg_attribute WHERE attrelid = to_regclass({literal(str(table))}) AND attnum > 0 "
            "AND NOT attisdropped AND attnotnull AND NOT atthasdef AND attidentity = '' "
            # A trigger before INSERT FOR EACH ROW may set it.
            "AND NOT EXISTS (SELECT 1 FROM pg_trigger WHERE tgrelid = attrelid AND tgtype & 7 = 7)"
        )
    elif form == "sqlite":
        sql = (
            f"SELECT name FROM pragma_table_info({literal(table.table)}) "
            'WHERE "notnull" = 1 AND dflt_value IS NULL AND pk = 0'
        )
    else:
        schema = literal(table.schema) if table.schema else "current_schema()"
        sql = (
            "SELECT column_name FROM duckdb_columns() WHERE database_name = current_database() "
            f"AND lower(schema_name) = lower({schema}) AND lower(table_name) = lower({literal(table.table)}) "
            "AND NOT is_nullable AND column_default IS NULL"
        )
    return [str(name) for (name,) in connection.rows(sql)]


def _in_postgres(table: Name) -> str:
    return (
        "SELECT a.attname, CASE t.typtype WHEN 'e' THEN 'enum ' ELSE '' END || format_type(a.atttypid, a.atttypmod) "
        "FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "
        f"WHERE a.attrelid = to_regclass({literal(str(table))}) AND a.attnum > 0 AND NOT a.attisdropped "
        "ORDER BY a.attnum"
    )


def _in_sqlite(table: Name) -> str:
    return f"SELECT name, type FROM pragma_table_info({literal(table.table)})"


def _in_duckdb(table: Name) -> str:
    schema = literal(table.schema) if table.schema else "current_schema()"
    return (
        "SELECT column_name, data_type FROM duckdb_columns() "
        f"WHERE database_name = current_database() AND lower(schema_name) = lower({schema}) "
        f"AND lower(table_name) = lower({literal(table.table)}) ORDER BY column_index"
    )


_COLUMNS = {"postgres": _in_postgres, "sqlite": _in_sqlite, "duckdb": _in_duckdb}


def read_columns(place: Place, table: Name, names: tuple[str, ...]) -> tuple[list[str], pa.Table | None]:
    """The names of all columns, and the data of some of them if the table has them all."""
    with opened(place) as connection, connection.transaction():
        known = list(columns_of_table(connection, table) or {})
        if not set(names) <= set(known):
            return known, None
        return known, connection.table(f"SELECT {', '.join(map(quote, names))} FROM {table}")
