"""Avro values to columns, by fastavro in workers: Spark's own functions for it need a jar."""

from __future__ import annotations

import io
import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

#: What a schema registry puts before a value: a zero, and the number of the schema.
HEADER_BYTES = 5


class AvroDecoder:
    """Decodes a column of values to a struct: the record as `value`, or what went wrong as `error`."""

    def __init__(self, schema: str, kind: pa.DataType, *, header: bool = False) -> None:
        self._schema = schema
        self._kind = kind
        self._header = header

    def column(self, values: pa.Array) -> pa.Array:
        import pyarrow

        found = [self.one(value) for value in values.to_pylist()]
        try:
            records = pyarrow.array([record for record, _ in found], self._kind)
        except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, OverflowError, TypeError, ValueError):
            found = [_fitting(pair, self._kind) for pair in found]
            records = pyarrow.array([record for record, _ in found], self._kind)
        errors = pyarrow.array([error for _, error in found], pyarrow.string())
        return pyarrow.StructArray.from_arrays([records, errors], ["value", "error"])

    def one(self, value: bytes | None) -> tuple[dict[str, Any] | None, str | None]:
        from fastavro import schemaless_reader

        if value is None:
            return None, "the record has no value"
        if self._header and (len(value) < HEADER_BYTES or value[0] != 0):
            return None, "the value does not begin with the header of a schema registry"
        stream = io.BytesIO(value)
        stream.seek(HEADER_BYTES if self._header else 0)
        try:
            record: Any = schemaless_reader(stream, _parsed(self._schema), None)
        except (EOFError, IndexError):
            return None, f"the Avro value ends too early, after {len(value)} bytes, or is of another schema"
        except Exception as error:  # whatever bytes can make of a decoder
            return None, f"the value is not of the Avro schema: {type(error).__name__}: {error}"
        left = len(value) - stream.tell()
        if left:
            return None, f"{left} bytes are left after the Avro record: is the schema another one?"
        return record, None


def _fitting(pair: tuple[dict[str, Any] | None, str | None], kind: Any) -> tuple[dict[str, Any] | None, str | None]:
    """A record that decodes, but whose values no column can hold."""
    import pyarrow

    try:
        pyarrow.array([pair[0]], kind)
    except (pyarrow.ArrowException, OverflowError, TypeError, ValueError) as error:
        return None, f"the Avro record does not fit the columns: {error}"
    return pair


@lru_cache(maxsize=32)
def _parsed(schema: str) -> Any:
    from fastavro import parse_schema

    return parse_schema(json.loads(schema))
