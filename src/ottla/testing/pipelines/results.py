"""The result of a test run, as plain Python values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ottla.clients.consumer.dead_letter_steps import DeadLetter
from ottla.consuming.values import ConsumerRecord
from ottla.spark.pipelines.declaration import VERSION
from ottla.suggestions import did_you_mean

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Result:
    """The rows of each sink, and the dead letters.

        result = run({"orders": [{"id": 1, "total": 5}, "not JSON"]})
        assert result["table"] == [{"id": 1, "total": 5.0}]
        assert result.dead_letters[0].reason.startswith("malformed JSON")

    `result["table"]` leaves out the columns of the origin and, for a topic, key and headers; `rows` has them all.
    """

    rows: Mapping[str, Sequence[Row]]
    """All columns by sink: those of the origin too; for a topic `_key`, `_headers`, `_partition`, `_offset`."""
    dead_letters: Sequence[DeadLetter] = ()
    broken_rules: Mapping[str, int] = field(default_factory=dict)
    """How many rows broke each rule that has seen rows."""
    seconds: float = field(default=0.0, compare=False)

    def __getitem__(self, sink: str) -> list[Row]:
        if sink not in self.rows:
            near = did_you_mean(sink, self.rows) or f" The sinks are {', '.join(self.rows)}."
            raise KeyError(f"the pipeline has no sink {sink}.{near}")
        return [{name: value for name, value in row.items() if not is_origin(name)} for row in self.rows[sink]]

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)


_ORIGIN = ("_topic", "_partition", "_offset", "_timestamp", "_key", "_headers", VERSION)


def is_origin(name: str) -> bool:
    """Whether a column describes the record and not its contents; so does the order of changes, which has a hash."""
    return name in _ORIGIN


def record_row(record: ConsumerRecord) -> Row:
    """A record of a topic sink as a row: the fields of a JSON object, or `_value`."""
    about: Row = {
        "_key": readable(record.key),
        "_headers": {name: readable(value) for name, value in record.headers},
        "_timestamp": record.timestamp,
        "_partition": record.partition,
        "_offset": record.offset,
    }
    try:
        found = json.loads(record.value) if record.value is not None else None
    except ValueError:
        found = None
    if isinstance(found, dict):
        return {**found, **about}
    return {"_value": readable(record.value), **about}


def letter_row(letter: DeadLetter) -> Row:
    return {
        "reason": letter.error_message,
        "value": readable(letter.value),
        "key": readable(letter.key),
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
    }


def readable(data: Any) -> Any:
    """UTF-8 bytes as text; others stay bytes."""
    if not isinstance(data, bytes):
        return data
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def in_log_order(rows: Sequence[Row]) -> list[Row]:
    """Sort rows by their origin if they have it, since Spark writes files in any order; otherwise by their contents."""

    def place(row: Row) -> tuple[Any, ...]:
        origin = (row.get("_topic"), row.get("_partition"), row.get("_offset"))
        return ("", *origin) if None not in origin else (json.dumps(row, sort_keys=True, default=str), "", 0, 0)

    return sorted(rows, key=place)
