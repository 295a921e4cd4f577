"""Guess the format of sample values, their columns, the event time, and a key that identifies an event."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ottla.spark.pipelines.inference.types import Notes, infer_cells, infer_fields
from ottla.spark.pipelines.schemas import Field, Schema

SEPARATORS = (",", ";", "\t", "|")
#: With fewer samples, values that differ say little.
ENOUGH = 10
_SCHEMA_REGISTRY = 5
_IDS = re.compile(r"(?:.*[_-])?(?:id|uuid|guid|key|number|no)|.*(?:Id|ID|Uuid|UUID)", re.ASCII)
_TIMES = (
    "event_time",
    "eventtime",
    "occurred_at",
    "timestamp",
    "time",
    "ts",
    "at",
    "created_at",
    "created",
    "datetime",
)
#: The range of a time of our days in each unit, and Spark's function for it.
_EPOCHS = {
    "seconds": (10**9, 10**10, "timestamp_seconds"),
    "milliseconds": (10**12, 10**13, "timestamp_millis"),
    "microseconds": (10**15, 10**16, "timestamp_micros"),
}
_LIKE_TIMES = re.compile(r"time|date|ts$|_at$|^at$|epoch", re.IGNORECASE)
_KEYS = ("bigint", "string", "decimal")


@dataclass(frozen=True, slots=True)
class Guess:
    """What the samples of a topic say."""

    format: str
    samples: int
    fields: tuple[Field, ...] = ()
    notes: Notes = field(default_factory=dict)
    """Remarks by column."""
    separator: str = ","
    escape: str | None = None
    event_time: str | None = None
    key: str | None = None
    """A column whose values identify the samples."""
    repeats: int = 0
    """Samples that were sent more than once."""
    others: int = 0
    """Samples in another format, which would be dead letters."""
    nulls: int = 0
    registry_ids: tuple[int, ...] = ()
    """The schema ids of values that begin like those of a schema registry."""

    @property
    def schema(self) -> Schema | None:
        return Schema(self.fields) if self.fields else None


def guess(values: Sequence[bytes | None]) -> Guess:
    """Guess from some values of a topic; values of None are tombstones."""
    given = [one for one in values if one is not None]
    texts = [text for one in given if (text := _text(one)) is not None]
    found = _json(given, texts) or _csv(given, texts) or _plain(given, texts)
    return Guess(**{**found, "samples": len(values), "nulls": len(values) - len(given)})


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


# ── JSON ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _json(given: Sequence[bytes], texts: Sequence[str]) -> dict[str, Any] | None:
    objects = [found for text in texts if (found := json_object(text)) is not None]
    if not objects or len(objects) < len(given) / 2:
        return None
    notes: Notes = {}
    fields = infer_fields(objects, notes)
    if not fields:
        return None
    _note_epochs(fields, objects, notes)
    distinct = list({json.dumps(one, sort_keys=True): one for one in objects}.values())
    return {
        "format": "json",
        "fields": fields,
        "notes": notes,
        "event_time": _event_time(fields),
        "key": _key(fields, distinct),
        "repeats": len(objects) - len(distinct),
        "others": len(given) - len(objects),
    }


def json_object(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _event_time(fields: Sequence[Field]) -> str | None:
    """The timestamp that is always there, by the likeliest name."""
    names = [one.name for one in fields if one.type.name == "timestamp" and one.required]
    usual = {name.lower(): name for name in names}
    likely = [usual[name] for name in _TIMES if name in usual]
    likely += [name for name in names if name.lower().endswith(("_at", "_time", "_ts", "time"))]
    return next(iter([*likely, *names]), None)


def _key(fields: Sequence[Field], objects: Sequence[dict[str, Any]]) -> str | None:
    """A required column with different values in all objects, best one that is called like an id."""
    if len(objects) < ENOUGH:
        return None
    unique = [
        one.name
        for one in fields
        if one.required
        and one.type.name in _KEYS
        and len({json.dumps(row[one.name]) for row in objects}) == len(objects)
    ]
    named = [name for name in unique if _IDS.fullmatch(name)]
    exact = [name for name in named if name.lower() in ("id", "uuid")]
    return next(iter([*exact, *named, *unique]), None)


def _note_epochs(fields: Sequence[Field], objects: Sequence[dict[str, Any]], notes: Notes) -> None:
    """Whole numbers that look like times stay numbers, because Spark reads numbers as seconds."""
    for one in fields:
        if one.type.name != "bigint" or not _LIKE_TIMES.search(one.name):
            continue
        values = [row[one.name] for row in objects if row.get(one.name) is not None]
        for unit, (low, high, function) in _EPOCHS.items():
            if all(low <= value < high for value in values):
                notes.setdefault(one.name, f"probably a time in {unit}: use {function}({one.name}) in a SQL step")


# ── Other formats ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _csv(given: Sequence[bytes], texts: Sequence[str]) -> dict[str, Any] | None:
    if not given or len(texts) < len(given):
        return None
    for separator in SEPARATORS:
        rows = [row for text in texts if (row := _cells(text, separator)) is not None]
        sizes = Counter(len(row) for row in rows)
        size, count = max(sizes.items(), key=lambda one: one[1], default=(0, 0))
        if size < 2 or count < max(len(given) * 0.9, 2):
            continue
        fields = infer_cells([row for row in rows if len(row) == size])
        if all(one.type.name == "string" for one in fields) and separator == ",":
            continue  # more likely sentences with commas
        return {
            "format": "csv",
            "fields": fields,
            "separator": separator,
            "escape": '"' if any('"' in text for text in texts) else None,
            "event_time": _event_time(fields),
            "others": len(given) - count,
        }
    return None


def _cells(text: str, separator: str) -> list[str] | None:
    lines = text.splitlines()
    if len(lines) != 1 or not text.strip() or lines[0] != text:
        return None
    try:
        (row,) = csv.reader(lines, delimiter=separator, strict=True)
    except (csv.Error, ValueError):
        return None
    return row


def _plain(given: Sequence[bytes], texts: Sequence[str]) -> dict[str, Any]:
    if given and len(texts) >= len(given) * 0.9 and not any("\0" in text for text in texts):
        return {"format": "text", "others": len(given) - len(texts)}
    return {"format": "bytes", "registry_ids": tuple(sorted(set(_registry_ids(given))))}


def _registry_ids(given: Sequence[bytes]) -> Iterator[int]:
    """The schema ids, if all values have the header of a schema registry."""
    if all(len(one) > _SCHEMA_REGISTRY and one[0] == 0 for one in given):
        yield from (int.from_bytes(one[1:_SCHEMA_REGISTRY], "big") for one in given)
