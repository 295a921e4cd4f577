"""Write values as TOML, and replace a key in a TOML text without touching the rest."""

from __future__ import annotations

import base64
import json
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from ottla.spark.pipelines.toml.lines import locate

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def inline(value: Any) -> str:
    """A value in one line. Nulls in a table are left out, because TOML has none.

    >>> inline({"id": 1, "at": datetime(2026, 1, 1, tzinfo=UTC), "note": None, "tags": ["a"]})
    '{id = 1, at = 2026-01-01T00:00:00Z, tags = ["a"]}'
    """
    if isinstance(value, Mapping):
        pairs = [f"{key(str(name))} = {inline(one)}" for name, one in value.items() if one is not None]
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(inline, value))}]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    if value is None:
        return "null"  # only in messages; rows with such lists are written as JSON
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        text = value.astimezone(UTC).replace(tzinfo=None).isoformat() if value.tzinfo else value.isoformat()
        return f"{text}Z" if value.tzinfo else text
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value) if value == Decimal(str(float(value))) and "E" not in str(value) else string(str(value))
    if isinstance(value, int | float):
        return repr(value) if not isinstance(value, float) or math.isfinite(value) else str(value)
    return string(text_of(value) if isinstance(value, bytes) else str(value))


def text_of(data: bytes) -> str:
    """Bytes as text: UTF-8, or base64."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode()


def string(text: str) -> str:
    """A string, in single quotes if that spares escapes."""
    if ('"' in text or "\\" in text) and "'" not in text and text.isprintable():
        return f"'{text}'"
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def key(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False).replace("\x7f", "\\u007f")


def rows_text(name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """A key with a list of rows, one per line."""
    if not rows:
        return f"{key(name)} = []\n"
    return "".join([f"{key(name)} = [\n", *(f"  {row_text(row)},\n" for row in rows), "]\n"])


def row_text(row: Mapping[str, Any]) -> str:
    """A row as an inline table, or as JSON text if a list in it has nulls."""
    if not _has_null_in_list(row):
        return inline(row)
    return string(json_text(row))


def json_text(row: Mapping[str, Any]) -> str:
    """A row as JSON, which has nulls."""
    return json.dumps(row, ensure_ascii=False, default=plain_text)


def plain_text(value: Any) -> str:
    """The text of a value without quotes: times as in TOML, bytes as UTF-8 or base64.

    >>> plain_text(date(2026, 1, 2)), plain_text(Decimal("1.50")), plain_text(b"a")
    ('2026-01-02', '1.50', 'a')
    """
    if isinstance(value, bytes):
        return text_of(value)
    return str(value) if isinstance(value, str | Decimal) else inline(value)


def _has_null_in_list(value: Any, inside: bool = False) -> bool:
    if isinstance(value, Mapping):
        return any(_has_null_in_list(one) for one in value.values())
    if isinstance(value, list | tuple):
        return any(_has_null_in_list(one, True) for one in value)
    return inside and value is None


def with_rows(text: str, table: str, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Replace the lists of rows in a table, and add those that are missing; everything else stays as it is.

    >>> print(with_rows("# my test\\n[expected]\\nt = [] # none\\n", "expected", {"t": [{"id": 1}]}), end="")
    # my test
    [expected]
    t = [
      {id = 1},
    ]
    """
    for name, found in rows.items():
        text = _replaced(text, table, name, rows_text(name, found))
    tomllib.loads(text)
    return text


def _replaced(text: str, table: str, name: str, new: str) -> str:
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    places = locate(text)
    if (table,) not in places:
        gap = ["\n"] if lines and lines[-1].strip() else []
        return "".join([*lines, *gap, f"[{table}]\n", new])
    start = places.get((table, name))
    if start is None:
        end = _end(lines, places, table, max(line for path, line in places.items() if path[:1] == (table,)))
        return "".join([*lines[:end], new, *lines[end:]])
    end = _end(lines, places, table, start, name)
    return "".join([*lines[: start - 1], new, *lines[end:]])


def _end(
    lines: Sequence[str], places: Mapping[tuple[str | int, ...], int], table: str, start: int, name: str | None = None
) -> int:
    """The number of the last line of a key, or of a table: comments above the next one belong to that one."""
    own = (table,) if name is None else (table, name)
    after = [line for path, line in places.items() if line > start and path[: len(own)] != own]
    end = min(after, default=len(lines) + 1) - 1
    while end > start and (not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#")):
        end -= 1
    return end
