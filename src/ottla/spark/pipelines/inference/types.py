"""Infer types that accept all sample values: `infer_fields` for JSON objects, `infer_cells` for the columns of CSV.

A type is as narrow as the samples allow. Values of different types become STRING, which accepts everything.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any

from ottla.spark.pipelines.declaration import RESERVED
from ottla.spark.pipelines.schemas import Field, Type, quoted

Notes = dict[str, str]
"""Remarks by column: what the samples leave open."""

DEEPEST = 8
#: An object with this many different names, most of them rare, is a map.
MAP_NAMES = 20
_LONG = 2**63
_DECIMAL = 10**38
_STRING = Type("string")
_TIMESTAMP = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:Z|[+-]\d{2}:\d{2})?")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_SIMPLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WHOLE = re.compile(r"-?(?:0|[1-9]\d*)")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_MOST_ZONE = timedelta(hours=18)


def infer_fields(
    objects: Sequence[Mapping[str, Any]], notes: Notes, path: str = "", depth: int = 0
) -> tuple[Field, ...]:
    """The columns of objects, in the order of their appearance. A field is required if no object lacks it."""
    counts = Counter(name for one in objects for name, value in one.items() if value is not None)
    names = dict.fromkeys(name for one in objects for name in one)
    kept: dict[str, str] = {}
    for name in sorted(names, key=lambda one: -counts[one]):
        if not name or not name.isprintable() or (not path and name.lower() in RESERVED):
            notes[f"{path}{name}"] = "left out: a column cannot have this name"
        elif name.lower() in kept:
            notes[f"{path}{name}"] = f"left out: Spark cannot tell it from {kept[name.lower()]}"
        else:
            kept[name.lower()] = name
    found = []
    for name in (one for one in names if kept.get(one.lower()) == one):
        values = [one[name] for one in objects if one.get(name) is not None]
        kind = infer_type(values, notes, f"{path}{name}", depth + 1)
        found.append(Field(name, kind, required=len(values) == len(objects)))
    return tuple(found)


def infer_type(values: Sequence[Any], notes: Notes, path: str, depth: int = 0) -> Type:
    """The type of some values that are not null."""
    kinds = {_kind(one) for one in values}
    if not values:
        notes[path] = "always null in the sample"
        return _STRING
    if kinds == {"object"} and depth < DEEPEST:
        return _object(values, notes, path, depth)
    if kinds == {"array"} and depth < DEEPEST:
        return _array(values, notes, path, depth)
    if kinds == {"boolean"}:
        return Type("boolean")
    if kinds == {"integer"}:
        return _whole(values, notes, path)
    if kinds <= {"integer", "number"}:
        return Type("double")
    if kinds == {"string"}:
        return _text(values)
    if len(kinds) > 1:
        words = sorted({"number" if one == "integer" else one for one in kinds})
        notes[path] = f"{' or '.join(words)} in the sample, so it is kept as text"
    else:
        notes[path] = "nested deeply, so it is kept as text"
    return _STRING


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def _object(values: Sequence[Mapping[str, Any]], notes: Notes, path: str, depth: int) -> Type:
    counts = Counter(name for one in values for name in one)
    is_map = len(counts) >= MAP_NAMES and max(counts.values()) < len(values) / 2
    own: Notes = {}
    fields = () if is_map else infer_fields(values, own, f"{path}.", depth)
    if fields:
        notes |= own
        return Type("struct", fields)
    inside = [value for one in values for value in one.values() if value is not None]
    if not inside:
        notes[path] = "always an empty object in the sample"
        kind = _STRING
    else:
        kind = infer_type(inside, notes, f"{path}.*", depth + 1)
    return Type("map", (Field("key", _STRING), Field("value", kind)))


def _array(values: Sequence[Sequence[Any]], notes: Notes, path: str, depth: int) -> Type:
    inside = [value for one in values for value in one if value is not None]
    if not inside:
        notes[path] = "always an empty array in the sample"
        return Type("array", (Field("element", _STRING),))
    return Type("array", (Field("element", infer_type(inside, notes, f"{path}[]", depth + 1)),))


def _whole(values: Sequence[int], notes: Notes, path: str) -> Type:
    if all(-_LONG <= one < _LONG for one in values):
        return Type("bigint")
    if all(-_DECIMAL < one < _DECIMAL for one in values):
        return Type("decimal", (), (38, 0))
    notes[path] = "numbers with more than 38 digits, so it is kept as text"
    return _STRING


def _text(values: Sequence[str]) -> Type:
    if all(is_timestamp(one) for one in values):
        return Type("timestamp")
    return Type("date") if all(is_date(one) for one in values) else _STRING


def is_timestamp(text: str) -> bool:
    """
    >>> is_timestamp("2026-01-01T12:00:00Z"), is_timestamp("2026-01-01"), is_timestamp("2026-02-30 12:00:00")
    (True, False, False)
    """
    if not (_TIMESTAMP.fullmatch(text) and text.isascii()):
        return False
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return False
    return abs(found.utcoffset() or timedelta()) <= _MOST_ZONE


def is_date(text: str) -> bool:
    if not (_DATE.fullmatch(text) and text.isascii()):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


# ── CSV ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


def infer_cells(rows: Sequence[Sequence[str]]) -> tuple[Field, ...]:
    """The columns c1, c2, … of rows with the same number of cells; an empty cell is null."""
    found = []
    for number, cells in enumerate(zip(*rows, strict=True), 1):
        given = [cell for cell in cells if cell]
        found.append(Field(f"c{number}", _cell_type(given), required=len(given) == len(cells)))
    return tuple(found)


def _cell_type(cells: Sequence[str]) -> Type:
    if not cells or not all(one.isascii() for one in cells):
        return _STRING
    if all(_WHOLE.fullmatch(one) and -_LONG <= int(one) < _LONG for one in cells):
        return Type("bigint")
    if all(_NUMBER.fullmatch(one) for one in cells):
        return Type("double")
    if all(one in ("true", "false") for one in cells):
        return Type("boolean")
    return _text(cells)


# ── DDL ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


def column_ddl(field: Field, separator: str = " ") -> str:
    """A column as the declaration writes it, with NOT NULL.

    >>> column_ddl(Field("id", Type("bigint"), required=True))
    'id BIGINT NOT NULL'
    """
    name = field.name if _SIMPLE.fullmatch(field.name) else quoted(field.name)
    return f"{name}{separator}{_type_ddl(field.type)}{' NOT NULL' if field.required else ''}"


def _type_ddl(kind: Type) -> str:
    if kind.name == "struct":
        return f"STRUCT<{', '.join(column_ddl(one, ': ') for one in kind.inside)}>"
    if kind.inside:
        return f"{kind.name.upper()}<{', '.join(_type_ddl(one.type) for one in kind.inside)}>"
    return kind.ddl().upper()
