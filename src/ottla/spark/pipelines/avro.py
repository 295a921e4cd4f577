"""Decode Avro values with fastavro in workers; Spark's own functions need a jar.

A value of a schema registry begins with a zero byte and the id of its schema in four bytes. Avro has no field names in
the data, so a value can only be read with the schema that wrote it. A value with an unknown id is rejected: with any
other schema, its fields could end up in the wrong columns without an error.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

HEADER_BYTES = 5


class AvroDecoder:
    """Decode a column of values to structs with the record as `value`, or the reason as `error`.

    `writers` has the schemas of a registry by id, and all values must have its header. Values of another schema than
    `schema` are converted to it by Avro's rules. Without `writers`, values have no header.
    """

    def __init__(self, schema: str, kind: pa.DataType, writers: Mapping[int, str] | None = None) -> None:
        self._schema = schema
        self._kind = kind
        self._writers = dict(writers or {})

    def column(self, values: pa.Array) -> pa.Array:
        return structs([self.one(value) for value in values.to_pylist()], self._kind)

    def one(self, value: bytes | None) -> tuple[dict[str, Any] | None, str | None]:
        """The record, or the reason why there is none."""
        if value is None:
            return None, "the record has no value"
        writer = self._schema
        if self._writers:
            if len(value) < HEADER_BYTES or value[0] != 0:
                return None, _no_header(value)
            number = int.from_bytes(value[1:HEADER_BYTES])
            if number not in self._writers:
                return None, _other_id(number, self._writers)
            writer = self._writers[number]
        reader = None if writer == self._schema else _parsed(self._schema)
        return self.read(value, _parsed(writer), reader, HEADER_BYTES if self._writers else 0)

    @staticmethod
    def read(value: bytes, writer: Any, reader: Any, start: int = 0) -> tuple[dict[str, Any] | None, str | None]:
        """Decode bytes from `start` that have the schema `writer`, and convert them to `reader` if there is one."""
        from fastavro import schemaless_reader

        stream = io.BytesIO(value)
        stream.seek(start)
        try:
            record: Any = schemaless_reader(stream, writer, reader)
        except (EOFError, IndexError):
            return None, f"the Avro value ends after {len(value)} bytes: it is truncated or has another schema"
        except Exception as error:  # invalid bytes can raise anything
            return None, f"the value does not match the Avro schema: {type(error).__name__}: {error}"
        left = len(value) - stream.tell()
        if left:
            return None, f"{left} extra bytes after the Avro record: the value may have another schema"
        return record, None


def structs(found: list[tuple[Any, str | None]], kind: Any) -> Any:
    """A column of structs with `value` and `error`; a record that does not match the columns gets an error."""
    import pyarrow

    try:
        records = pyarrow.array([record for record, _ in found], kind)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, OverflowError, TypeError, ValueError):
        found = [_fitting(pair, kind) for pair in found]
        records = pyarrow.array([record for record, _ in found], kind)
    errors = pyarrow.array([error for _, error in found], pyarrow.string())
    return pyarrow.StructArray.from_arrays([records, errors], ["value", "error"])


def _no_header(value: bytes) -> str:
    start = f"begins with the byte 0x{value[0]:02x}" if value and value[0] else f"has {len(value)} bytes"
    return f"the value has no schema registry header (a zero byte and the schema id in four bytes): it {start}"


def _other_id(number: int, known: Mapping[int, str]) -> str:
    expected = " or ".join(map(str, sorted(known)))
    return f"schema id {number}, expected {expected}: add the schema with this id to writer_schemas of the source"


def _fitting(pair: tuple[dict[str, Any] | None, str | None], kind: Any) -> tuple[dict[str, Any] | None, str | None]:
    """Reject a record that decodes but does not match the columns."""
    import pyarrow

    try:
        pyarrow.array([pair[0]], kind)
    except (pyarrow.ArrowException, OverflowError, TypeError, ValueError) as error:
        return None, f"the record does not match the columns: {error}"
    return pair


@lru_cache(maxsize=32)
def _parsed(schema: str) -> Any:
    from fastavro import parse_schema

    return parse_schema(json.loads(schema))
