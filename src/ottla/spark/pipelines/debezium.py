"""Debezium's envelope: the row of a change, what happened to it, and when.

    {"before": {…}, "after": {…}, "op": "u", "ts_ms": 1700000000123, "source": {"ts_ms": …, "lsn": …, …}}

With `schemas.enable`, the envelope is in `payload`, beside its schema. The columns are those of the row, and

    _op        c (insert), u (update), d (delete), r (read by a snapshot)
    _ts        when the database changed the row
    _sequence  text that orders the changes of a row: the time, then the position in the log of the database

A delete has the columns of `before`, and of the record key where `before` has none. The tombstone after a delete is
skipped. Everything here is SQL for Spark, except `reasons`, which runs in workers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from ottla.spark.pipelines.schemas import Schema

OP, TIME, SEQUENCE = "_op", "_ts", "_sequence"
ADDED = (OP, TIME, SEQUENCE)
#: Rows that exist after the change, and rows that do not.
_WRITES, _DELETE = ("c", "u", "r"), "d"
_OTHERS = {"t": "truncate", "m": "message"}
#: The position in the log of the database, with its width. A connector has some of them: Postgres lsn, MySQL file, pos
#: and row, SQL Server the other lsns, Oracle scn. Of the file, only the number counts: binlog.000012.
_POSITIONS = {
    "source['lsn']": 20,
    "source['commit_lsn']": 22,
    "source['change_lsn']": 22,
    "source['event_serial_no']": 5,
    "source['scn']": 20,
    "regexp_extract(source['file'], '([0-9]+)$')": 10,
    "source['pos']": 12,
    "source['row']": 6,
}
_TIME_WIDTH = 17


def value_ddl(schema: Schema) -> str:
    """The envelope, alone or beside its schema."""
    row = f"STRUCT<{', '.join(f'{one.quoted}: {one.type.ddl()}' for one in schema.fields)}>"
    parts = {"before": row, "after": row, "op": "STRING", "ts_ms": "BIGINT", "source": "MAP<STRING, STRING>"}
    inside = ", ".join(f"{name}: {kind}" for name, kind in parts.items())
    return f"{', '.join(f'{name} {kind}' for name, kind in parts.items())}, payload STRUCT<{inside}>"


def key_ddl(schema: Schema) -> str:
    """The record key, alone or beside its schema."""
    row = ", ".join(f"{one.quoted}: {one.type.ddl()}" for one in schema.fields)
    return f"{schema.ddl()}, payload STRUCT<{row}>"


class Envelope:
    """SQL for the parts of an envelope. `value` and `key` are parsed with the schemas above."""

    def __init__(self, schema: Schema, value: str, key: str) -> None:
        self._schema, self._value, self._key = schema, value, key

    def columns(self) -> list[str]:
        """The columns of the row, and the added ones."""
        found = [f"{self._column(one.quoted)} AS {one.quoted}" for one in self._schema.fields]
        return [
            *found,
            f"{self._op} AS {OP}",
            f"timestamp_micros({self._micros}) AS {TIME}",
            f"{self._order()} AS {SEQUENCE}",
        ]

    def readable(self, missing: Callable[[str], Iterator[str]]) -> list[str]:
        """Conditions that are true for good records; `missing` gives those of missing fields in a row."""
        kinds = ", ".join(f"'{one}'" for one in (*_WRITES, _DELETE))
        known = f"coalesce({self._op} IN ({kinds}), false)"
        after = [
            f"NOT ({self._in(place)} IS NOT NULL AND {one})"
            for place in ("payload.after", "after")
            for one in missing(self._in(place))
        ]
        written = f"{self._in('payload.after')} IS NOT NULL OR {self._in('after')} IS NOT NULL"
        some = " OR ".join(f"{self._deleted(one.quoted)} IS NOT NULL" for one in self._schema.fields)
        return [
            known,
            f"{self._micros} IS NOT NULL",
            f"{self._op} = '{_DELETE}' OR {written}",
            f"{self._op} <> '{_DELETE}' OR {some}",
            *[f"{self._op} = '{_DELETE}' OR {one}" for one in after],
        ]

    def _in(self, path: str) -> str:
        return f"{self._value}.{path}"

    def _either(self, path: str) -> str:
        return f"coalesce({self._in(f'payload.{path}')}, {self._in(path)})"

    @property
    def _op(self) -> str:
        return self._either("op")

    @property
    def _micros(self) -> str:
        """The time in the database; without it, the time when Debezium read the change."""
        source = self._either("source")
        known = [f"try_cast({source}['ts_us'] AS BIGINT)", f"try_cast({source}['ts_ms'] AS BIGINT) * 1000"]
        return f"coalesce({', '.join(known)}, {self._either('ts_ms')} * 1000)"

    def _deleted(self, name: str) -> str:
        return f"coalesce({self._either(f'before.{name}')}, {self._key}.payload.{name}, {self._key}.{name})"

    def _column(self, name: str) -> str:
        return f"IF({self._op} = '{_DELETE}', {self._deleted(name)}, {self._either(f'after.{name}')})"

    def _order(self) -> str:
        time = f"lpad(CAST({self._micros} AS STRING), {_TIME_WIDTH}, '0')"
        source = self._either("source")
        places = [f"lpad({one.replace('source', source)}, {width}, '0')" for one, width in _POSITIONS.items()]
        return f"concat_ws('-', {time}, {', '.join(places)})"  # leaves out NULL


def reasons(found: dict[str, Any], row: Callable[[dict[str, Any]], Iterator[str]]) -> Iterator[str]:
    """What is wrong with the object in a value; `row` checks the fields of a row."""
    if isinstance(found.get("payload"), dict) and "op" not in found:
        found = found["payload"]
    op = found.get("op")
    if op is None:
        yield "the value is not an envelope of Debezium: it has no op"
    elif op not in (*_WRITES, _DELETE):
        named = f" ({_OTHERS[op]})" if op in _OTHERS else ""
        yield f"op is {json.dumps(op)}{named}, expected one of {', '.join((*_WRITES, _DELETE))}"
    elif op == _DELETE:
        if not isinstance(found.get("before"), dict):
            yield "op is d, but neither before nor the record key has a column of the schema"
    elif not isinstance(found.get("after"), dict):
        yield f"op is {op}, but after has no row"
    else:
        yield from row(found["after"])
    if not isinstance(found.get("source"), dict) and found.get("ts_ms") is None:
        yield "the envelope has no time: neither source.ts_ms nor ts_ms"
