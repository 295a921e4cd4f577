"""Decode Avro values with fastavro in workers; Spark's own functions need a jar."""

from __future__ import annotations

import io
import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

#: The header of a schema registry: a zero byte and the schema id.
HEADER_BYTES = 5


class AvroDecoder:
    """Decode a column of values to structs with the record as `value`, or the reason as `error`."""

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
            return None, "the value has no schema registry header"
        stream = io.BytesIO(value)
        stream.seek(HEADER_BYTES if self._header else 0)
        try:
            record: Any = schemaless_reader(stream, _parsed(self._schema), None)
        except (EOFError, IndexError):
            return None, f"the Avro value ends after {len(value)} bytes: it is truncated or has another schema"
        except Exception as error:  # invalid bytes can raise anything
            return None, f"the value does not match the Avro schema: {type(error).__name__}: {error}"
        left = len(value) - stream.tell()
        if left:
            return None, f"{left} extra bytes after the Avro record: the value may have another schema"
        return record, None


def _fitting(pair: tuple[dict[str, Any] | None, str | None], kind: Any) -> tuple[dict[str, Any] | None, str | None]:
    """Reject a record that decodes but does not match the columns."""
    import pyarrow

    try:
        pyarrow.array([pair[0]], kind)
    except (pyarrow.ArrowException, OverflowError, TypeError, ValueError) as error:
        return None, f"the Avro record does not match the columns: {error}"
    return pair


@lru_cache(maxsize=32)
def _parsed(schema: str) -> Any:
    from fastavro import parse_schema

    return parse_schema(json.loads(schema))
