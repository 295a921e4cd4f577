"""Columns of DataFrames: which exist, and which has the watermark."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.suggestions import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Spark's metadata key of a column with a watermark.
_WATERMARK_MS = "spark.watermarkDelayMs"


class StepError(ValueError):
    """An invalid step; `key` is the wrong key."""

    def __init__(self, message: str, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key


def check_columns(wanted: Iterable[str], frame: DataFrame, key: str, where: str = "the input") -> None:
    """Raise StepError with a suggestion if a column is missing."""
    known = {name.lower() for name in frame.columns}
    for name in wanted:
        if name.lower() not in known:
            near = did_you_mean(name, frame.columns) or f" The columns are {', '.join(frame.columns)}."
            raise StepError(f"{key}: {where} has no column {name}.{near}", key)


def record_place(columns: Iterable[str]) -> str:
    """SQL for " in the record of orders-0 at offset 42", for a message; empty text if the rows do not say it."""
    if not {"_topic", "_partition", "_offset"} <= set(columns):
        return "''"
    return "concat(' in the record of ', _topic, '-', _partition, ' at offset ', _offset)"


def watermarks(frame: DataFrame) -> dict[str, int]:
    """The columns with a watermark, and its delay in milliseconds."""
    return {one.name: delay for one in frame.schema.fields if (delay := one.metadata.get(_WATERMARK_MS)) is not None}
