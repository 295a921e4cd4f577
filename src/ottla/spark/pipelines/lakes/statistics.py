"""The statistics of a file of a Delta table, which let readers skip it."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

#: Delta's default: more columns are not worth the size of the log.
MOST_COLUMNS = 32
#: Longer text has no statistics. Cutting it would need care for the upper end.
LONGEST_TEXT = 32


def statistics_of(rows: pa.Table) -> dict[str, Any]:
    """The number of rows, and of the first columns with simple types the range and the number of NULLs.

    >>> import pyarrow as pa
    >>> statistics_of(pa.table({"id": [1, 2, None]}))
    {'numRecords': 3, 'minValues': {'id': 1}, 'maxValues': {'id': 2}, 'nullCount': {'id': 1}}
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name, column in list(zip(rows.column_names, rows.columns, strict=True))[:MOST_COLUMNS]:
        if pa.types.is_nested(column.type):
            continue
        nulls[name] = column.null_count
        if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type) or pa.types.is_boolean(column.type):
            continue
        if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
            continue  # to some readers it is the highest value, and to others none at all
        ends = pc.min_max(column).as_py()
        low, high = _as_json(ends["min"]), _as_json(ends["max"])
        if low is not None and high is not None:
            lowest[name], highest[name] = low, high
    return {"numRecords": len(rows), "minValues": lowest, "maxValues": highest, "nullCount": nulls}


def _as_json(value: Any) -> Any:
    """A value as Delta's statistics have it; None if it has none."""
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            return value.isoformat(timespec="microseconds")
        return f"{value.astimezone(datetime.UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, str):
        return value if len(value) <= LONGEST_TEXT else None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return float(value) if Decimal(float(value)) == value else None
    return value if isinstance(value, int) else None
