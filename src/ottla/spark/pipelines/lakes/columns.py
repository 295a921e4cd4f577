"""Columns of a pipeline and of a table: whether they fit together, and rows with the columns of a table. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ottla.spark.pipelines.lakes.contract import LakeError

if TYPE_CHECKING:
    import pyarrow as pa

_WIDER = {
    "int8": ("int16", "int32", "int64"),
    "int16": ("int32", "int64"),
    "int32": ("int64",),
    "halffloat": ("float", "double"),
    "float": ("double",),
}


def missing_columns(rows: pa.Schema, table: pa.Schema, what: str) -> list[pa.Field]:
    """The columns that the table does not have; raises LakeError if others have incompatible types.

    >>> import pyarrow as pa
    >>> table = pa.schema({"id": pa.int64()})
    >>> [one.name for one in missing_columns(pa.schema({"ID": pa.int32(), "note": pa.string()}), table, "the table")]
    ['note']
    """
    known = {one.name.lower(): one for one in table}
    wrong = [
        f"{one.name} is {type_name(one.type)} here and {type_name(there.type)} in the table"
        for one in rows
        if (there := known.get(one.name.lower())) is not None and not fits(one.type, there.type)
    ]
    if wrong:
        raise LakeError(
            f"{what} has columns of other types: {', '.join(wrong)}. Convert them in a step with CAST(… AS …), or "
            "write to another table"
        )
    given = {one.name.lower() for one in rows}
    absent = [one.name for one in table if not one.nullable and one.name.lower() not in given]
    if absent:
        raise LakeError(
            f"{what} needs a value for {', '.join(absent)}, which the input does not have: add the column in a step, "
            "or write to another table"
        )
    return [one for one in rows if one.name.lower() not in known]


def fits(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of one type can be stored as another without loss."""
    import pyarrow as pa

    if _plain(given) == _plain(wanted) or str(wanted) in _WIDER.get(str(given), ()):
        return True
    if pa.types.is_decimal(given) and pa.types.is_decimal(wanted):
        return bool(wanted.scale >= given.scale and wanted.precision - wanted.scale >= given.precision - given.scale)
    return False


def _plain(kind: pa.DataType) -> str:
    """A type without what does not matter: large offsets, names of list items, whether fields may be null."""
    import pyarrow as pa

    types = pa.types
    if types.is_large_string(kind) or types.is_string_view(kind):
        return "string"
    if types.is_large_binary(kind) or types.is_binary_view(kind):
        return "binary"
    if types.is_list(kind) or types.is_large_list(kind):
        return f"list<{_plain(kind.value_type)}>"
    if types.is_map(kind):
        return f"map<{_plain(kind.key_type)}, {_plain(kind.item_type)}>"
    if types.is_struct(kind):  # Arrow's cast knows the fields by their exact names, and makes others NULL
        return f"struct<{', '.join(f'{one.name}: {_plain(one.type)}' for one in kind)}>"
    if types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    return str(kind)


_SQL = {
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bool": "BOOLEAN",
    "date32[day]": "DATE",
}


def type_name(kind: pa.DataType) -> str:
    """The name of a type in SQL.

    >>> import pyarrow as pa
    >>> type_name(pa.int64()), type_name(pa.timestamp("us", "UTC")), type_name(pa.decimal128(9, 2))
    ('BIGINT', 'TIMESTAMP', 'DECIMAL(9, 2)')
    """
    plain = _plain(kind).replace("decimal128", "decimal")
    return _SQL.get(plain, plain if "struct<" in plain else plain.upper())


def conformed(rows: pa.Table, schema: pa.Schema, what: str = "the table") -> pa.Table:
    """The rows with the columns of a table: in its order, with its types, and NULL for what is missing."""
    import pyarrow as pa

    places = {name.lower(): place for place, name in enumerate(rows.column_names)}
    columns: list[Any] = []
    for one in schema:
        place = places.get(one.name.lower())
        found = pa.nulls(len(rows), one.type) if place is None else rows.column(place)
        if found.type != one.type:
            found = found.cast(one.type)
        if not one.nullable and found.null_count:
            raise LakeError(
                f"column {one.name} of {what} is NOT NULL, but a row has no value for it: remove such rows with a "
                f'step, or set require = ["{one.name} IS NOT NULL"] for the source to make them dead letters'
            )
        columns.append(found)
    return pa.table(columns, schema=schema)


def chunks(batches: Iterable[pa.RecordBatch], most: int) -> Iterator[pa.Table]:
    """Join small batches to tables of about `most` bytes, which become files."""
    import pyarrow as pa

    kept: list[Any] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            kept.append(batch)
            size += batch.nbytes
        if size >= most:
            yield pa.Table.from_batches(kept)
            kept, size = [], 0
    if kept:
        yield pa.Table.from_batches(kept)
