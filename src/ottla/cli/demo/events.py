"""The events of ``ottla demo``: generated orders, or lines of a CSV or JSON file.

Orders resemble real ones: a few shops have most of them, some are sent twice, some are broken. Lines of a file are sent
unchanged, CSV rows as JSON objects; some are sent twice. The kind of an event lets the demo check the outcome.
"""

from __future__ import annotations

import csv
import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, Protocol

from ottla.errors import OttlaError

#: One in REPEATED events is sent twice, at most APART events later.
REPEATED, APART = 50, 200
BROKEN = 100
SHOPS = ("Berlin", "Madrid", "Oslo", "Athens", "Lisbon", "Prague", "Dublin", "Riga", "Vienna", "Porto", "Ghent", "Cork")
#: The number of rows used to infer the column types of a file.
SAMPLED = 1_000
_WHOLE = re.compile(r"[+-]?\d{1,18}")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


class Kind(Enum):
    """The expected outcome of an event."""

    GOOD = "good"
    REPEAT = "repeat"
    BROKEN = "broken"
    OWN = "own"  # a line of the user's file: unknown


@dataclass(frozen=True, slots=True)
class Event:
    key: bytes
    value: bytes
    kind: Kind


class Events(Protocol):
    """A stream of events, and how to read them."""

    topic: str
    schema: str
    """The columns of the values, as Spark DDL."""
    dedupe: str
    """The column that identifies repeated events."""
    source_key: str
    """The same as SQL over a record, for the audit."""
    table_key: str
    """The same as SQL over a row of the table."""

    def describe(self) -> str:
        """A short description."""

    def __iter__(self) -> Iterator[Event]: ...


def with_repeats(events: Iterator[Event], chance: random.Random) -> Iterator[Event]:
    """Send some of the events again, a little later."""
    again: dict[int, Event] = {}
    number = 0
    for number, event in enumerate(events):
        yield event
        if event.kind is not Kind.BROKEN and chance.randrange(REPEATED) == 0:
            again[number + chance.randint(1, APART)] = Event(event.key, event.value, Kind.REPEAT)
        if number in again:
            yield again.pop(number)
    yield from again.values()


@dataclass
class Orders:
    """Generated orders; half of them are from one shop."""

    count: int
    seed: int = 1
    topic: str = field(default="orders", init=False)
    schema: str = field(default="order_id STRING NOT NULL, shop STRING, amount DOUBLE, at TIMESTAMP", init=False)
    dedupe: str = field(default="order_id", init=False)
    source_key: str = field(default="get_json_object(cast(value AS STRING), '$.order_id')", init=False)
    table_key: str = field(default="order_id", init=False)

    def describe(self) -> str:
        return (
            f"{self.count:,} orders, half of them from one shop; 1 in {REPEATED} is sent twice, 1 in {BROKEN} is broken"
        )

    def __iter__(self) -> Iterator[Event]:
        chance = random.Random(self.seed)
        return with_repeats(self._once(chance), chance)

    def _once(self, chance: random.Random) -> Iterator[Event]:
        weights = list(accumulate(1 / 2**place for place in range(1, len(SHOPS) + 1)))
        for number in range(self.count):
            shop = chance.choices(SHOPS, cum_weights=weights)[0]
            order = {
                "order_id": f"{shop[:2].upper()}-{number:07d}",
                "shop": shop,
                "amount": round(chance.lognormvariate(3.2, 0.8), 2),
                "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            }
            broken = chance.randrange(BROKEN) == 0
            value = _break(order, chance.randrange(3)) if broken else json.dumps(order).encode()
            yield Event(shop.encode(), value, Kind.BROKEN if broken else Kind.GOOD)


def _break(order: dict[str, Any], how: int) -> bytes:
    """Break an order: truncated, a word instead of a number, or without an id."""
    if how == 0:
        return json.dumps(order).encode()[:-17]
    if how == 1:
        return json.dumps({**order, "amount": "much"}).encode()
    return json.dumps({name: value for name, value in order.items() if name != "order_id"}).encode()


class Lines:
    """The rows of a CSV file with a header, or the lines of a JSON lines file."""

    dedupe = "_key"
    source_key = "cast(key AS STRING)"
    table_key = "cast(_key AS STRING)"

    def __init__(self, path: Path, seed: int = 1) -> None:
        self._path = path
        self._seed = seed
        self.topic = re.sub(r"[^\w.-]+", "-", path.stem).strip(".-")[:100] or "data"
        if not path.is_file():
            raise OttlaError(f"{path} is not a file: name a CSV file (.csv, .tsv) or a JSON lines file (.json, .jsonl)")
        self._csv = path.suffix.lower() in (".csv", ".tsv")
        first = list(islice(self._values(), SAMPLED))
        if not first:
            raise OttlaError(f"{path} has no rows")
        self.schema = schema_of([one for one in map(_object, first) if one is not None], str(path))

    def describe(self) -> str:
        return f"the lines of {self._path}; 1 in {REPEATED} is sent twice"

    def __iter__(self) -> Iterator[Event]:
        lines = (Event(str(number).encode(), value, Kind.OWN) for number, value in enumerate(self._values(), 1))
        return with_repeats(lines, random.Random(self._seed))

    def _values(self) -> Iterator[bytes]:
        return self._rows() if self._csv else self._json_lines()

    def _json_lines(self) -> Iterator[bytes]:
        with self._path.open("rb") as file:
            for line in file:
                if line.strip():
                    yield line.strip()

    def _rows(self) -> Iterator[bytes]:
        with self._path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
            separator = "\t" if self._path.suffix.lower() == ".tsv" else _separator(file.readline())
            file.seek(0)
            rows = csv.reader(file, delimiter=separator)
            names = [name.strip() or f"column_{number}" for number, name in enumerate(next(rows, []), 1)]
            for row in rows:
                if len(row) == len(names):
                    found = {name: _typed(text) for name, text in zip(names, row, strict=True)}
                    yield json.dumps(found, ensure_ascii=False).encode()
                elif row:  # the pipeline reports it as a dead letter
                    yield separator.join(row).encode()


def _separator(header: str) -> str:
    return max(",;\t|", key=header.count)


def _typed(text: str) -> Any:
    """
    >>> [_typed(text) for text in ("7", "7.5", "x", "", "NA")]
    [7, 7.5, 'x', None, None]
    """
    if text in ("", "NA", "null", "NULL", "NaN"):
        return None
    if _WHOLE.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text):
        return float(text)
    return text


def _object(value: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(value)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def schema_of(objects: Sequence[dict[str, Any]], name: str) -> str:
    """Infer Spark DDL from objects; columns of mixed types become STRING.

    >>> schema_of([{"id": 1, "price": 2}, {"id": 2, "price": 2.5, "on": True, "tags": []}], "x")
    '`id` BIGINT, `price` DOUBLE, `on` BOOLEAN, `tags` STRING'
    """
    if not objects:
        raise OttlaError(f"{name}: none of the first lines is a JSON object (a CSV file needs the suffix .csv)")
    kinds: dict[str, set[str]] = {}
    for one in objects:
        for column, value in one.items():
            kinds.setdefault(column, set()).update(_kind(value))
    folded = [column.lower() for column in kinds]
    twice = next((column for column in kinds if folded.count(column.lower()) > 1), None)
    if twice is not None:
        raise OttlaError(f"{name}: two columns are named {twice!r} (case is ignored): rename one")
    return ", ".join(f"`{column.replace('`', '``')}` {_ddl(found)}" for column, found in kinds.items())


def _kind(value: Any) -> set[str]:
    if value is None:
        return set()
    if isinstance(value, bool):
        return {"BOOLEAN"}
    if isinstance(value, int):
        return {"BIGINT" if abs(value) < 2**63 else "DOUBLE"}
    return {"DOUBLE"} if isinstance(value, float) else {"STRING"}


def _ddl(kinds: set[str]) -> str:
    if kinds == {"BIGINT", "DOUBLE"}:
        return "DOUBLE"
    return kinds.pop() if len(kinds) == 1 else "STRING"
