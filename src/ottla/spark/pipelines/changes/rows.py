"""The step with latest: changes as rows that a table can merge in any order.

`_version` is text that orders the changes of a key. It contains the sequence, then 1 for a delete, then a hash of the
content. So a delete wins against another change with the same sequence, and between other ones the choice is arbitrary,
but always the same. It has only digits and the letters A to F, which every database orders in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ottla.spark.pipelines.columns import StepError, check_columns, record_place
from ottla.spark.pipelines.declaration import DELETED, ORIGIN, VALID_FROM, VALID_TO, VERSION, Latest
from ottla.spark.pipelines.schemas import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

_HASH_DIGITS = 16
_INTEGERS = {"byte": "CAST({} AS BIGINT)", "short": "CAST({} AS BIGINT)", "integer": "CAST({} AS BIGINT)", "long": "{}"}
_TIMES = {
    "date": "CAST(unix_date({}) AS BIGINT)",
    "timestamp": "unix_micros({})",
    "timestamp_ntz": "timestampdiff(MICROSECOND, TIMESTAMP_NTZ '1970-01-01 00:00:00', {})",
}


def changes(step: Latest, frame: DataFrame) -> DataFrame:
    """The rows with the columns that order them. A delete keeps only the keys, the sequence and its origin."""
    for key, names in (("latest", step.keys), ("sequence", step.order), ("exclude", step.exclude)):
        check_columns(names, frame, key)
    _check_names(step, frame.columns)
    if step.deletes and frame.selectExpr(f"({step.deletes}) AS deleted").dtypes[0][1] != "boolean":
        raise StepError(f"deletes must be a condition: {step.deletes} is not true or false", "deletes")
    origin = [name for name in frame.columns if name in (*ORIGIN, "_headers")]
    left_out = _lower([*step.exclude, *origin])
    content = [name for name in frame.columns if name.lower() not in left_out]
    fixed = _lower([*step.keys, *step.order])
    frame = frame.withColumn(DELETED, _expr(f"coalesce(({step.deletes or 'false'}), false)"))
    versions = f"concat({', '.join([*_encoded(step, frame), f'''IF({DELETED}, '1', '0')'''])})"
    first = quoted(step.order[0])
    valid = [f"{first} AS {VALID_FROM}", f"CAST(NULL AS {_type_of(frame, step.order[0])}) AS {VALID_TO}"]
    rows = frame.selectExpr(
        *[quoted(name) if name.lower() in fixed else _unless_deleted(name) for name in content],
        *(valid if step.history else ()),
        *map(quoted, origin),
        DELETED,
        f"{_with_sequence(step, frame.columns, versions)} AS {VERSION}",
    )
    return rows.withColumn(VERSION, _expr(f"concat({VERSION}, {_hash(rows, content)})"))


def corrected(rows: DataFrame) -> DataFrame:
    """The rows of the step for a backfill: they replace stored ones of the same sequence, whatever their hash is."""
    sequence = f"left({VERSION}, length({VERSION}) - {_HASH_DIGITS})"
    return rows.withColumn(VERSION, _expr(f"concat({sequence}, repeat('F', {_HASH_DIGITS}))"))


def _check_names(step: Latest, names: Iterable[str]) -> None:
    taken = _lower(names) & {VERSION, DELETED, *((VALID_FROM, VALID_TO) if step.history else ())}
    if taken:
        raise StepError(f"latest adds a column {min(taken)}, but the input has one: rename it in the step before")


def _lower(names: Iterable[str]) -> set[str]:
    return {name.lower() for name in names}


def _unless_deleted(name: str) -> str:
    return f"IF({DELETED}, NULL, {quoted(name)}) AS {quoted(name)}"


def _type_of(frame: DataFrame, name: str) -> str:
    return str(frame.select(quoted(name)).dtypes[0][1])


def _with_sequence(step: Latest, columns: Sequence[str], text: str) -> str:
    """SQL that fails the query for a change without a sequence: it has no place among the others."""
    names = ", ".join(step.order).replace("'", "")
    advice = (
        ". A change without a sequence has no order: remove such rows with a step, or set require = "
        f'["{step.order[0]} IS NOT NULL"] for the source to make them dead letters'
    ).replace("'", "")
    failure = f"concat('the sequence ({names}) is NULL', {record_place(columns)}, '{advice}')"
    condition = " OR ".join(f"{quoted(name)} IS NULL" for name in step.order)
    return f"IF({condition}, CAST(raise_error({failure}) AS STRING), {text})"


# ── The order as text ────────────────────────────────────────────────────────────────────────────────────────────────


def _encoded(step: Latest, frame: DataFrame) -> list[str]:
    kinds = {one.name.lower(): one.dataType for one in frame.schema.fields}
    return [encoded(name, kinds[name.lower()]) for name in step.order]


def encoded(name: str, kind: DataType) -> str:
    """SQL for text that sorts like the column: hexadecimal with a fixed length, or with an end."""
    column, word = quoted(name), kind.typeName()
    number = {**_INTEGERS, **_TIMES}.get(word)
    if number is not None:  # the flipped sign puts negative numbers first
        return f"lpad(hex({number.format(column)} ^ shiftleft(1L, 63)), 16, '0')"
    if word == "decimal" and getattr(kind, "scale", 1) == 0:
        digits = f"lpad(CAST(abs({column}) AS STRING), 38, '0')"
        negative = f"concat('0', translate({digits}, '0123456789', '9876543210'))"
        return f"IF({column} < 0, {negative}, concat('1', {digits}))"
    if word == "string":  # a longer text comes after its beginning
        return f"concat(regexp_replace(hex({column}), '(..)', '1$1'), '0')"
    raise StepError(
        f"sequence {name} is {word}: use a whole number, a date, a timestamp or text, for example CAST({name} AS "
        "BIGINT) in the step before",
        "sequence",
    )


def _hash(frame: DataFrame, names: Sequence[str]) -> str:
    """SQL for a hash of columns. Spark's hash ignores NULL, and maps have no hash."""
    parts = []
    for name in names:
        column = quoted(name)
        has_map = "map<" in _type_of(frame, name) or "variant" in _type_of(frame, name)
        parts += [f"{column} IS NULL", f"to_json(struct({column}))" if has_map else column]
    return f"lpad(hex(xxhash64({', '.join(parts)})), {_HASH_DIGITS}, '0')"


def _expr(text: str) -> Column:
    from pyspark.sql import functions as fn

    return fn.expr(text)
