"""Which type a column of a pipeline has in a database, and whether it fits the type of an existing column. No I/O.

Types of pipelines are Spark's, as its `simpleString` writes them: ``decimal(10,2)``, ``array<int>``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ottla.errors import OttlaError
from ottla.spark.pipelines.declaration import DatabaseFormat

_PARAMETERS = re.compile(r"\((\d+)(?:,\s*(\d+))?\)")
_NESTED = ("array", "map", "struct", "variant")
#: SQLite keeps numbers with a fraction as doubles, which have this many exact digits.
_SQLITE_DIGITS = 15
#: The digits of a second that a timestamp of Spark has.
_MICROSECONDS = 6
_JSON = "json"

_NEW: Mapping[DatabaseFormat, Mapping[str, str]] = {
    "postgres": {
        "tinyint": "smallint",
        "smallint": "smallint",
        "int": "integer",
        "bigint": "bigint",
        "float": "real",
        "double": "double precision",
        "decimal": "numeric",
        "boolean": "boolean",
        "string": "text",
        "binary": "bytea",
        "date": "date",
        "timestamp": "timestamp with time zone",
        "timestamp_ntz": "timestamp without time zone",
        _JSON: "jsonb",
    },
    "sqlite": {
        **dict.fromkeys(("tinyint", "smallint", "int", "bigint", "boolean"), "INTEGER"),
        **dict.fromkeys(("float", "double"), "REAL"),
        **dict.fromkeys(("string", "date", "timestamp", "timestamp_ntz", _JSON), "TEXT"),
        "decimal": "NUMERIC",
        "binary": "BLOB",
    },
    "duckdb": {
        "tinyint": "TINYINT",
        "smallint": "SMALLINT",
        "int": "INTEGER",
        "bigint": "BIGINT",
        "float": "FLOAT",
        "double": "DOUBLE",
        "decimal": "DECIMAL",
        "boolean": "BOOLEAN",
        "string": "VARCHAR",
        "binary": "BLOB",
        "date": "DATE",
        "timestamp": "TIMESTAMP WITH TIME ZONE",
        "timestamp_ntz": "TIMESTAMP",
        _JSON: "JSON",
    },
}
#: Types of existing columns that keep every value. The type of a new column fits, too.
_FITTING: Mapping[DatabaseFormat, Mapping[str, tuple[str, ...]]] = {
    "postgres": {
        "tinyint": ("integer", "bigint", "numeric", "real", "double precision"),
        "smallint": ("integer", "bigint", "numeric", "real", "double precision"),
        "int": ("bigint", "numeric", "double precision"),
        "bigint": ("numeric",),
        "float": ("double precision",),
        "string": ("character varying", "character", "citext", "uuid", "json", "jsonb", "enum"),
        "timestamp": ("timestamp without time zone",),
        _JSON: ("json", "text"),
    },
    "sqlite": {
        **dict.fromkeys(("tinyint", "smallint", "int", "bigint", "boolean"), ("NUMERIC", "")),
        **dict.fromkeys(("float", "double"), ("NUMERIC", "")),
        **dict.fromkeys(("date", "timestamp", "timestamp_ntz"), ("NUMERIC", "")),
        **dict.fromkeys(("string", "decimal", "binary", _JSON), ("",)),
    },
    "duckdb": {
        "tinyint": ("SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "DECIMAL", "FLOAT", "DOUBLE"),
        "smallint": ("INTEGER", "BIGINT", "HUGEINT", "DECIMAL", "FLOAT", "DOUBLE"),
        "int": ("BIGINT", "HUGEINT", "DECIMAL", "DOUBLE"),
        "bigint": ("HUGEINT", "DECIMAL"),
        "float": ("DOUBLE",),
        "string": ("UUID", "JSON", "ENUM"),
        _JSON: ("VARCHAR",),
    },
}


class NoSuchType(OttlaError):
    """A database has no type for a column."""


def kind_of(spark_type: str) -> str:
    """The type without its parameters; nested ones are stored as JSON.

    >>> kind_of("decimal(10,2)"), kind_of("array<int>"), kind_of("varchar(20)")
    ('decimal', 'json', 'string')
    """
    kind = re.split(r"[(<]", spark_type)[0]
    return _JSON if kind in _NESTED else "string" if kind in ("char", "varchar") else kind


def is_json(spark_type: str) -> bool:
    """Whether values are stored as JSON text."""
    return kind_of(spark_type) == _JSON


def type_of(form: DatabaseFormat, spark_type: str) -> str:
    """The type of a new column.

    >>> type_of("postgres", "decimal(10,2)"), type_of("sqlite", "timestamp"), type_of("duckdb", "map<string,int>")
    ('numeric(10,2)', 'TEXT', 'JSON')
    """
    kind = kind_of(spark_type)
    found = _NEW[form].get(kind)
    precision, scale = _parameters(spark_type)
    if found is None:
        raise NoSuchType(f"{form} has no type for {spark_type}: cast it in a step, such as CAST(… AS STRING)")
    if form == "sqlite" and kind == "decimal" and precision > _SQLITE_DIGITS:
        raise NoSuchType(
            f"sqlite keeps only {_SQLITE_DIGITS} digits of {spark_type}: cast it in a step, to DOUBLE, STRING or "
            f"DECIMAL({_SQLITE_DIGITS},{min(scale, _SQLITE_DIGITS)})"
        )
    return f"{found}({precision},{scale})" if kind == "decimal" and form != "sqlite" else found


def staged_type(form: DatabaseFormat, spark_type: str) -> str:
    """The type in a staging table, which is that of the Arrow data."""
    return type_of(form, "string" if is_json(spark_type) else spark_type)


def fits(form: DatabaseFormat, spark_type: str, column_type: str) -> bool:
    """Whether a column of the database keeps every value of this type.

    >>> fits("postgres", "int", "bigint"), fits("postgres", "bigint", "integer")
    (True, False)
    >>> fits("postgres", "decimal(10,2)", "numeric"), fits("duckdb", "decimal(10,2)", "DECIMAL(9,2)")
    (True, False)
    >>> fits("sqlite", "string", "VARCHAR(20)"), fits("sqlite", "string", "INT")
    (True, False)
    """
    kind = kind_of(spark_type)
    stored = _affinity(column_type) if form == "sqlite" else _PARAMETERS.sub("", column_type).strip()
    if stored.upper().startswith("ENUM"):
        stored = "ENUM" if form == "duckdb" else "enum"
    if stored not in (_NEW[form].get(kind), *_FITTING[form].get(kind, ())):
        return False
    if stored.startswith("timestamp") and form == "postgres" and "(" in column_type:
        return _parameters(column_type)[0] >= _MICROSECONDS
    if kind == "decimal" and form != "sqlite" and "(" in column_type:
        precision, scale = _parameters(spark_type)
        room, places = _parameters(column_type)
        return places >= scale and room - places >= precision - scale
    return True


def _parameters(text: str) -> tuple[int, int]:
    found = _PARAMETERS.search(text)
    return (int(found[1]), int(found[2] or 0)) if found else (0, 0)


def _affinity(declared: str) -> str:
    """SQLite's rules for the type of a column; empty for a column that keeps everything as it is.

    >>> [_affinity(one) for one in ("BIGINT", "varchar(3)", "double", "DATETIME", "")]
    ['INTEGER', 'TEXT', 'REAL', 'NUMERIC', '']
    """
    text = declared.upper()
    for signs, affinity in (
        (("INT",), "INTEGER"),
        (("CHAR", "CLOB", "TEXT"), "TEXT"),
        (("BLOB",), "BLOB"),
        (("REAL", "FLOA", "DOUB"), "REAL"),
    ):
        if any(sign in text for sign in signs):
            return affinity
    return "NUMERIC" if text not in ("", "ANY") else ""
