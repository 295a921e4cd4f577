"""Parse values into columns with Spark's own parsers, and find the reasons for broken records.

Good JSON and CSV records stay in the JVM; only broken ones go to Python. `explode` of a one-element array keeps Spark
from parsing twice (once to filter, once for the columns), because filters are not pushed through it.

Spark's JSON parser ignores what follows an object: a second record would be lost without a word. So a value is parsed
as a part of a larger object, {"value": [VALUE], "_ottla_end": 0}. What follows the value breaks that object, hides its
end, or becomes a second item of the array.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.registry.values import Schema as RegistrySchema
from ottla.spark.pipelines import debezium
from ottla.spark.pipelines.avro import AvroDecoder
from ottla.spark.pipelines.checks.pipeline import declared_schema
from ottla.spark.pipelines.declaration import Pipeline, Source, Table
from ottla.spark.pipelines.options import as_settings
from ottla.spark.pipelines.reasons import Reasons
from ottla.spark.pipelines.registry import RegistryDecoder, latest
from ottla.spark.pipelines.rules import dead_letter_rules, unmet
from ottla.spark.pipelines.schemas import Field, Type, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

DEBEZIUM = "debezium"
#: Internal columns; a schema must not use these names.
VALUE, PARSED, FAILED = "_value", "_parsed", "_failed"
_CORRUPT, _END = "_broken", "_ottla_end"
#: The parts of JSON around a value. The new line ends a comment, if options allow comments.
_BEFORE, _AFTER = '{"value":[', f'\n],"{_END}":0}}'


class Format:
    """The format of a source: `parse` values, recognize `good` ones, and give the `reason` for broken ones."""

    def __init__(self, pipeline: Pipeline, source: Source | Table, *, with_rules: bool = True) -> None:
        self.kind = source.format if isinstance(source, Source) else source.value_format
        self.schema = declared_schema(source, pipeline)
        self.options = as_settings(source.options) if isinstance(source, Source) else {}
        own = tuple(source.require) if isinstance(source, Source) else ()
        found = dead_letter_rules(pipeline, source.name) if isinstance(source, Source) and with_rules else []
        self.rules = dict(enumerate(found, len(own)))
        """The rules that send dead letters, by the numbers of their conditions."""
        self.require = (*own, *(one.that for one in found))
        self._told = (*own, *(f"{one.that} (rule {one.name})" for one in found))
        self.nulls = source.null_values if isinstance(source, Source) else "broken"
        if self.kind == DEBEZIUM:  # the tombstone after a delete
            self.nulls = "skip"
        self._writers = writer_schemas(pipeline, source)
        self._file = Path(pipeline.path(source.schema_file)) if source.schema_file else None
        self._registered = source if isinstance(source, Source) and source.registry else None
        self.decodes = self.kind == "avro" or self._registered is not None
        """Whether workers decode the values, and Spark's parsers do not."""

    def parse(self, frame: DataFrame) -> DataFrame:
        """Add the columns of the values, and the columns that `good` needs."""
        from pyspark.sql import functions as fn

        parsed = self._parsed()
        frame = frame.withColumn(PARSED, parsed if self.decodes else fn.explode(fn.array(parsed)))
        frame = frame.selectExpr("*", *self._columns())
        return frame.withColumn(FAILED, fn.expr(unmet(self.require))) if self.require else frame

    def good(self) -> str:
        """SQL that is true for good records: readable ones that meet all conditions."""
        return f"{self.readable()} AND (size({FAILED}) = 0)" if self.require else self.readable()

    def readable(self) -> str:
        """SQL that is true for records that match the format and schema."""
        conditions = [f"{VALUE} IS NOT NULL"] if self.nulls != "keep" else []
        text = f"CAST({VALUE} AS STRING)"
        if self.decodes:
            return " AND ".join(f"({one})" for one in [*conditions, f"{PARSED}.error IS NULL"])
        if self.kind in ("json", "csv", DEBEZIUM):
            conditions += [f"is_valid_utf8({text})", f"{self._at} IS NOT NULL", f"{self._whole}.{_CORRUPT} IS NULL"]
        if self.kind in ("json", DEBEZIUM):
            conditions += [f"size({self._whole}.value) = 1", f"{self._whole}.{_END} IS NOT NULL"]
        if self.kind == DEBEZIUM:
            conditions += self._envelope().readable(self._missing)
        elif self.kind in ("json", "csv"):
            conditions += [f"NOT ({one})" for one in self._missing(self._at)]
        if self.kind == "csv":
            conditions.append(f"trim({text}) <> ''")
        elif self.kind == "text":
            conditions.append(f"({VALUE} IS NULL OR is_valid_utf8({text}))")
        return " AND ".join(f"({one})" for one in conditions) or "true"

    @property
    def columns(self) -> list[str]:
        added = debezium.ADDED if self.kind == DEBEZIUM else ()
        return [*self.schema.names, *added] if self.schema else ["value"]

    def reason(self) -> Column:
        """The reason why a record is broken."""
        from pyspark.sql import functions as fn

        failed = fn.col(FAILED) if self.require else fn.array().cast("array<int>")
        # The decoder has found what is wrong with a value; conditions are left.
        reasons = Reasons("bytes" if self.decodes else self.kind, self.schema, self.options.get("sep", ","), self._told)
        reason = _arrow_udf(reasons.column, "string")(fn.col(VALUE), failed)
        if self.decodes:
            return fn.coalesce(fn.col(f"{PARSED}.error"), reason)
        return reason

    def _parsed(self) -> Column:
        from pyspark.sql import functions as fn

        value = fn.col(VALUE)
        if self.schema is None:
            return fn.struct((value if self.kind == "bytes" else value.cast("string")).alias("value"))
        if self.decodes:
            return self._decoded(value)
        options = {**self.options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
        text = value.cast("string")
        if self.kind == "csv":
            return fn.from_csv(text, f"{self.schema.ddl()}, {_CORRUPT} STRING", options)
        columns = debezium.value_ddl(self.schema) if self.kind == DEBEZIUM else self.schema.ddl()
        whole = fn.concat(fn.lit(_BEFORE), text, fn.lit(_AFTER))
        parsed = fn.from_json(whole, f"value ARRAY<STRUCT<{columns}>>, {_END} INT, {_CORRUPT} STRING", options)
        if self.kind != DEBEZIUM:
            return parsed
        key = fn.from_json(fn.col("_key").cast("string"), debezium.key_ddl(self.schema), self.options)
        return fn.struct(parsed.alias("whole"), key.alias("key"))

    @property
    def _whole(self) -> str:
        """What Spark's parser returned."""
        return f"{PARSED}.whole" if self.kind == DEBEZIUM else PARSED

    @property
    def _at(self) -> str:
        """Where the columns of the value are."""
        if self.decodes:
            return f"{PARSED}.value"
        return f"get({self._whole}.value, 0)" if self.kind in ("json", DEBEZIUM) else PARSED

    def _envelope(self) -> debezium.Envelope:
        assert self.schema is not None
        return debezium.Envelope(self.schema, self._at, f"{PARSED}.key")

    def _decoded(self, value: Column) -> Column:
        from pyspark.sql.pandas.types import to_arrow_type
        from pyspark.sql.types import StringType, StructField, StructType

        assert self.schema is not None
        kind = spark_type(Type("struct", self.schema.fields))
        result = StructType([StructField("value", kind), StructField("error", StringType())])
        decode = _arrow_udf(self._decoder(to_arrow_type(kind, timezone="UTC")).column, result)
        # Otherwise Spark decodes twice, once to filter and once for the columns.
        return decode.asNondeterministic()(value)

    def _decoder(self, kind: Any) -> AvroDecoder | RegistryDecoder:
        text = None if self._file is None else self._file.read_text()
        if self._registered is None:
            assert text is not None
            return AvroDecoder(text, kind, self._writers)
        assert self.schema is not None
        reader = None
        if self.kind != "json":
            reader = latest(self._registered).schema if text is None else RegistrySchema(text)
        return RegistryDecoder(self._registered, self.schema, kind, reader)

    def _missing(self, path: str) -> Iterator[str]:
        if self.schema is not None:
            yield from missing(self.schema.fields, path)

    def _columns(self) -> list[str]:
        if self.kind == DEBEZIUM:
            return self._envelope().columns()
        return [f"{self._at}.{quoted(name)} AS {quoted(name)}" for name in self.columns]


def writer_schemas(pipeline: Pipeline, source: Source | Table) -> dict[int, str]:
    """The Avro schemas of the values by their ids in a registry; empty if values have no header."""
    if not source.confluent_header or source.schema_id is None or source.schema_file is None:
        return {}
    files = {str(source.schema_id): source.schema_file, **source.writer_schemas}
    return {int(number): Path(pipeline.path(file)).read_text() for number, file in files.items()}


def _arrow_udf(function: Callable[..., Any], kind: Any) -> Any:
    """A function on columns that runs in Spark's workers."""
    from pyspark.sql import functions as fn

    with warnings.catch_warnings():
        # Spark prefers type hints, but resolves them only if the module imports pyarrow.
        warnings.simplefilter("ignore", UserWarning)
        return fn.arrow_udf(partial(function), kind, fn.ArrowUDFType.SCALAR)


def missing(fields: Iterable[Field], path: str, depth: int = 0) -> Iterator[str]:
    """SQL that is true if a required field is missing, also inside structs and arrays."""
    for one in fields:
        at = f"{path}.{one.quoted}"
        if one.required:
            yield f"{at} IS NULL"
        yield from _missing_inside(one.type, at, depth)


def _missing_inside(kind: Type, at: str, depth: int) -> Iterator[str]:
    if kind.name == "struct":
        for one in missing(kind.inside, at, depth):
            yield f"{at} IS NOT NULL AND {one}"
    elif kind.name == "array":
        name = f"x{depth}"
        inner = [*_missing_inside(kind.inside[0].type, name, depth + 1)]
        if inner:
            yield f"coalesce(exists({at}, {name} -> {' OR '.join(f'({one})' for one in inner)}), false)"


def spark_type(kind: Type) -> DataType:
    """Convert to Spark's type, without a session."""
    from pyspark.sql import types as kinds

    if kind.name == "struct":
        return kinds.StructType([kinds.StructField(one.name, spark_type(one.type)) for one in kind.inside])
    if kind.name == "array":
        return kinds.ArrayType(spark_type(kind.inside[0].type))
    if kind.name == "map":
        return kinds.MapType(spark_type(kind.inside[0].type), spark_type(kind.inside[1].type))
    if kind.name == "decimal":
        return kinds.DecimalType(*(kind.numbers or (10, 0)))
    plain = {
        "boolean": kinds.BooleanType,
        "int": kinds.IntegerType,
        "bigint": kinds.LongType,
        "float": kinds.FloatType,
        "double": kinds.DoubleType,
        "string": kinds.StringType,
        "binary": kinds.BinaryType,
        "date": kinds.DateType,
        "timestamp": kinds.TimestampType,
        "timestamp_ntz": kinds.TimestampNTZType,
        "void": kinds.NullType,
    }
    return plain[kind.name]()
