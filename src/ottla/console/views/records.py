"""What the records page is asked for, and what it shows."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from typing import NamedTuple

from ottla.clients.jsonlines import format_record
from ottla.console.views.commands import about, command_line
from ottla.console.views.pieces import Piece, visible
from ottla.console.views.values import AUTO, FORMATS, HEADER, KEY, LIST, Lens, Room, Shown, shown
from ottla.records import Headers, Record
from ottla.times import parse_time
from ottla.types import Millis, TopicPartition

KEEP_BYTES = 64 * 1024
"""Of larger values only the beginning is kept while a page is made."""
LONGEST_COMMAND = 100_000
"""Larger records are copied with `ottla consume` instead of with their content in a command."""
MOST_ROWS = 500
STARTS = {"end": "the newest", "start": "the oldest", "offset": "an offset", "time": "a time"}
PLACES = ("key", "value", "headers")
_OUTCOMES = {"commit": "committed", "abort": "aborted"}
READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"


class BadQuery(ValueError):
    """A URL that asks for something impossible; the text says what to change."""


class Row(NamedTuple):
    """A record as it was read."""

    partition: int
    offset: int
    timestamp: Millis
    is_append_time: bool
    key: bytes | None
    value: bytes | None
    headers: Headers
    value_size: int
    """The size of the whole value, of which `value` may be the beginning. -1 for null."""
    producer_id: int = -1
    is_transactional: bool = False
    marker: str | None = None
    """For a control record: commit or abort."""
    outcome: str | None = None
    """For a record of a transaction in read_uncommitted: committed or aborted, if its marker was read, too."""

    @property
    def is_whole(self) -> bool:
        return self.value is None or len(self.value) == self.value_size


def row_of(record: Record, *, partition: int, is_append_time: bool, producer_id: int, is_transactional: bool) -> Row:
    """A row that keeps the beginning of a large value."""
    value = record.value
    return Row(
        partition,
        record.offset,
        record.timestamp,
        is_append_time,
        record.key,
        value if value is None or len(value) <= KEEP_BYTES else value[:KEEP_BYTES],
        record.headers,
        -1 if value is None else len(value),
        producer_id,
        is_transactional,
    )


# ── what was asked for ────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """The query string of the page."""

    partitions: tuple[int, ...] | None = None
    """None for all."""
    start: str = "end"
    offset: int = 0
    time: str = ""
    at: Mapping[int, int] | None = None
    """Go on from these offsets, to newer records."""
    before: Mapping[int, int] | None = None
    """Go on before these offsets, to older records."""
    search: str = ""
    places: tuple[str, ...] = PLACES
    key_format: str = AUTO
    value_format: str = AUTO
    nested: bool = False
    isolation: str = READ_UNCOMMITTED
    limit: int = 50

    @property
    def is_backward(self) -> bool:
        """Whether the newest records come first."""
        return self.at is None and (self.before is not None or self.start == "end")

    @property
    def since(self) -> Millis:
        """The time, which is UTC if it does not say otherwise."""
        return _time(self.time)

    def parameters(self) -> dict[str, str]:
        """The shortest query string that means the same."""
        given = {
            "partition": "" if self.partitions is None else ",".join(map(str, self.partitions)),
            "from": "" if self.start == "end" else self.start,
            "offset": str(self.offset) if self.start == "offset" else "",
            "time": self.time if self.start == "time" else "",
            "at": "" if self.at is None else cursor(self.at),
            "before": "" if self.before is None else cursor(self.before),
            "q": self.search,
            "in": "" if self.places == PLACES else ",".join(self.places),
            "key": "" if self.key_format == AUTO else self.key_format,
            "value": "" if self.value_format == AUTO else self.value_format,
            "nested": "1" if self.nested else "",
            "isolation": "" if self.isolation == READ_UNCOMMITTED else self.isolation,
            "limit": "" if self.limit == 50 else str(self.limit),
        }
        return {name: value for name, value in given.items() if value}

    def going_on(self, *, at: Mapping[int, int] | None = None, before: Mapping[int, int] | None = None) -> Query:
        """The same from another place."""
        return replace(self, at=at, before=before)


def read_query(given: Mapping[str, str], places: Sequence[str] = ()) -> Query:
    """Read a query string; `places` are the values of a repeated ``in``. Raises BadQuery.

    >>> read_query({"partition": "0,2", "from": "offset", "offset": "17"}).parameters()
    {'partition': '0,2', 'from': 'offset', 'offset': '17'}
    """
    start = _one_of("from", given.get("from") or "end", STARTS)
    named = [one for part in places for one in part.split(",") if one]
    query = Query(
        partitions=_partitions(given.get("partition", "")),
        start=start,
        offset=_whole("offset", given.get("offset") or "0") if start == "offset" else 0,
        time=given.get("time", "").strip() if start == "time" else "",
        at=_cursor("at", given.get("at", "")),
        before=_cursor("before", given.get("before", "")),
        search=given.get("q", ""),
        places=tuple(one for one in PLACES if one in [_one_of("in", name, PLACES) for name in named]) or PLACES,
        key_format=_one_of("key", given.get("key") or AUTO, FORMATS),
        value_format=_one_of("value", given.get("value") or AUTO, FORMATS),
        nested=given.get("nested", "") not in ("", "0"),
        isolation=_one_of("isolation", given.get("isolation") or READ_UNCOMMITTED, (READ_UNCOMMITTED, READ_COMMITTED)),
        limit=min(max(_whole("limit", given.get("limit") or "50"), 1), MOST_ROWS),
    )
    if start == "time":
        _time(query.time)
    needle(query.search)
    return query


def _one_of(name: str, value: str, known: Iterable[str]) -> str:
    if value not in known:
        raise BadQuery(f"{name}={value[:40]} is unknown: use {', '.join(known)}")
    return value


def _whole(name: str, text: str) -> int:
    digits = text.strip().replace(",", "").replace("_", "")
    if not digits.isdecimal() or len(digits) > 19:
        raise BadQuery(f"{name}: {text[:40]!r} is not a whole number")
    return int(digits)


def _partitions(text: str) -> tuple[int, ...] | None:
    parts = [part for part in text.replace(" ", ",").split(",") if part]
    return tuple(sorted({_whole("partition", part) for part in parts})) or None


def _time(text: str) -> Millis:
    if not text:
        raise BadQuery("time: give a time, such as 2026-01-31T08:00")
    try:
        return parse_time(text, UTC)
    except argparse.ArgumentTypeError as error:
        raise BadQuery(f"time: {error}") from None


def cursor(offsets: Mapping[int, int]) -> str:
    """Offsets of partitions as text.

    >>> cursor({0: 17, 2: 5})
    '0:17,2:5'
    """
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(offsets.items()))


def _cursor(name: str, text: str) -> dict[int, int] | None:
    if not text:
        return None
    pairs = [part.partition(":") for part in text.split(",")]
    return {_whole(name, partition): _whole(name, offset) for partition, _, offset in pairs}


# ── search ────────────────────────────────────────────────────────────────────────────────────────────────────────


def needle(text: str) -> bytes:
    """The bytes to search for: the text in UTF-8 and small letters, or the bytes of ``0x…``.

    >>> needle("Alice"), needle("0x00ff")
    (b'alice', b'\\x00\\xff')
    """
    if text.lower().startswith("0x"):
        try:
            return bytes.fromhex(text[2:])
        except ValueError:
            raise BadQuery(f"{text[:40]!r} is not hex: write two digits for each byte, such as 0x00ff") from None
    return text.encode("utf-8", "surrogatepass").lower()


@dataclass(frozen=True, slots=True)
class Search:
    """Looks for bytes in records. ASCII letters match in both cases."""

    wanted: bytes
    places: tuple[str, ...] = PLACES
    is_hex: bool = False

    @classmethod
    def of(cls, query: Query) -> Search | None:
        is_hex = query.search.lower().startswith("0x")
        return cls(needle(query.search), query.places, is_hex) if query.search else None

    def matches(self, record: Record) -> bool:
        return any(self._is_in(data) for data in self._parts(record))

    def _parts(self, record: Record) -> Iterable[bytes | None]:
        if "key" in self.places:
            yield record.key
        if "value" in self.places:
            yield record.value
        if "headers" in self.places:
            for name, value in record.headers:
                yield name.encode("utf-8", "surrogateescape")
                yield value

    def _is_in(self, data: bytes | None) -> bool:
        return data is not None and self.wanted in (data if self.is_hex else data.lower())


# ── what is shown ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class ShownRecord:
    """A record for a page."""

    row: Row
    key: Shown
    value: Shown
    headers: list[tuple[list[Piece], Shown]]
    command: str | None
    """Writes the same record again; None for a control record."""

    @property
    def anchor(self) -> str:
        return f"r{self.row.partition}-{self.row.offset}"

    @property
    def time_type(self) -> str:
        """Kafka's name of the kind of its timestamp."""
        return "LogAppendTime" if self.row.is_append_time else "CreateTime"


def shown_record(
    row: Row, topic: str, *, key: Lens, value: Lens, room: Room = LIST, arguments: Sequence[str] = ()
) -> ShownRecord:
    """A record with its parts as they are shown."""
    headers = [
        (list(visible(name)), shown(data, Lens(value.format if value.format == "hex" else AUTO), HEADER))
        for name, data in row.headers
    ]
    command = None if row.marker else produce_command(row, topic, arguments)
    size = None if row.value_size < 0 else row.value_size
    return ShownRecord(row, shown(row.key, key, KEY), shown(row.value, value, room, size), headers, command)


def produce_line(key: bytes | None, value: bytes | None, headers: Headers) -> str:
    """A record as a line for ``ottla produce --json``, in ASCII only: nothing in it acts on a terminal."""
    record = Record(0, 0, key, value, headers)
    fields = json.loads(format_record(TopicPartition("", 0), record))
    for name in ("topic", "partition", "offset", "timestamp"):
        del fields[name]
    if not fields["headers"]:
        del fields["headers"]
    # DEL is the one ASCII control character that JSON leaves as it is.
    return json.dumps(fields).replace("\x7f", "\\u007f")


def produce_command(row: Row, topic: str, arguments: Sequence[str] = ()) -> str:
    """A command for a POSIX shell that writes the record again."""
    produce = command_line(about(["produce"], topic, "--json"), arguments)
    size = sum(len(part or b"") for _, part in row.headers) + len(row.key or b"") + max(row.value_size, 0)
    if size > LONGEST_COMMAND or not row.is_whole:
        place = ["--partition", str(row.partition), "--offset", str(row.offset), "--max-messages", "1"]
        return f"{command_line(about(['consume'], topic, *place, '--json'), arguments)} | {produce}"
    return f"printf '%s\\n' {shlex.quote(produce_line(row.key, row.value, row.headers))} | {produce}"


def with_outcomes(rows: Sequence[Row]) -> list[Row]:
    """Rows of partitions in order of offsets, with the outcome of transactions whose marker is among them."""
    ends: dict[tuple[int, int], str] = {}
    found = []
    for row in sorted(rows, key=lambda one: (one.partition, -one.offset)):
        if row.marker:
            ends[row.partition, row.producer_id] = {"commit": "committed", "abort": "aborted"}.get(
                row.marker, row.marker
            )
        elif row.is_transactional:
            row = row._replace(outcome=ends.get((row.partition, row.producer_id)))
        found.append(row)
    return found[::-1]
