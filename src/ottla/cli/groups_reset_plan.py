"""Where offsets are to go: the scenarios of ``ottla groups reset-offsets``, and the file that one of them reads.

A scenario says for each partition what is wanted; `plan` keeps that inside of what the partition has. Nothing is
changed here.
"""

from __future__ import annotations

import argparse
import csv
import re
import time
from argparse import Namespace
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.consuming.values import OffsetAndMetadata
from ottla.errors import OttlaError
from ottla.types import Millis, TopicPartition

_DAYS = r"(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
_TIME = r"(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,3})?)S)?"
# In ISO 8601 an M before the T would be months, which have no fixed length.
_DURATIONS = [re.compile(pattern, re.IGNORECASE) for pattern in (f"P{_DAYS}(?:T{_TIME})?", f"{_DAYS}{_TIME}")]
_UNITS_MS = {"weeks": 604_800_000, "days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}


class Ends(NamedTuple):
    """The first offset of a partition, and the one after its last."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Planned:
    """A partition and its new offset."""

    key: TopicPartition
    current: int | None
    new: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Situation:
    """What a scenario is applied to."""

    admin: AsyncAdmin
    partitions: Sequence[TopicPartition]
    committed: Mapping[TopicPartition, OffsetAndMetadata]
    ends: Mapping[TopicPartition, Ends]


Wanted = dict[TopicPartition, tuple[int, str]]
"""An offset for each partition, and what there is to say about it."""
Scenario = Callable[[Situation, Namespace], Awaitable[Wanted]]


async def plan(situation: Situation, args: Namespace) -> list[Planned]:
    """What the command line asks for, partition by partition."""
    wanted = await scenario_of(args)(situation, args)
    return [_planned(key, situation, *wanted[key]) for key in situation.partitions]


def _planned(key: TopicPartition, situation: Situation, wanted: int, note: str) -> Planned:
    committed, ends = situation.committed.get(key), situation.ends[key]
    current = committed.offset if committed is not None else None
    new = min(max(wanted, ends.start), ends.end)
    if wanted > ends.end:
        note = f"{wanted} is after the end: set to the end, {ends.end}"
    elif wanted < ends.start:
        note = f"{wanted} is before the start: set to the start, {ends.start}"
    return Planned(key, current, new, note)


def scenario_of(args: Namespace) -> Scenario:
    """The one scenario that the command line has."""
    given = {name: getattr(args, name) for name in SCENARIOS}
    return next(SCENARIOS[name] for name, value in given.items() if value is not None and value is not False)


# the scenarios


async def _earliest(situation: Situation, args: Namespace) -> Wanted:
    return {key: (situation.ends[key].start, "") for key in situation.partitions}


async def _latest(situation: Situation, args: Namespace) -> Wanted:
    return {key: (situation.ends[key].end, "") for key in situation.partitions}


async def _offset(situation: Situation, args: Namespace) -> Wanted:
    return dict.fromkeys(situation.partitions, (args.to_offset, ""))


async def _current(situation: Situation, args: Namespace) -> Wanted:
    found = {key: situation.committed.get(key) for key in situation.partitions}
    return {
        key: (one.offset, "") if one is not None else (situation.ends[key].end, "nothing committed: the end")
        for key, one in found.items()
    }


async def _shift(situation: Situation, args: Namespace) -> Wanted:
    missing = [str(key) for key in situation.partitions if key not in situation.committed]
    if missing:
        raise OttlaError(
            f"--shift-by needs a committed offset to begin with, and the group has none for {', '.join(missing)}: "
            "leave these out with --topic TOPIC:P,P, or give --to-offset"
        )
    return {key: (situation.committed[key].offset + args.shift_by, "") for key in situation.partitions}


async def _timestamp(situation: Situation, args: Namespace) -> Wanted:
    return await _at(situation, args.to_timestamp)


async def _duration(situation: Situation, args: Namespace) -> Wanted:
    return await _at(situation, time.time_ns() // 1_000_000 - args.by_duration)


async def _at(situation: Situation, timestamp: Millis) -> Wanted:
    found = await situation.admin.list_offsets(dict.fromkeys(situation.partitions, max(timestamp, 0)))
    return {
        key: (one.offset, "") if one.offset >= 0 else (situation.ends[key].end, "no record is that young: the end")
        for key, one in found.items()
    }


async def _from_file(situation: Situation, args: Namespace) -> Wanted:
    offsets = read_file(args.from_file, args.group)
    return {key: (offsets[key], "") for key in situation.partitions}


SCENARIOS: Mapping[str, Scenario] = {
    "to_earliest": _earliest,
    "to_latest": _latest,
    "to_offset": _offset,
    "to_timestamp": _timestamp,
    "by_duration": _duration,
    "shift_by": _shift,
    "to_current": _current,
    "from_file": _from_file,
}


# values of the command line


def parse_duration(text: str) -> Millis:
    """A length of time, in ISO 8601 or the short way.

    >>> parse_duration("PT1H30M"), parse_duration("90m"), parse_duration("2d"), parse_duration("1.001s")
    (5400000, 5400000, 172800000, 1001)
    """
    matches = [match for pattern in _DURATIONS if (match := pattern.fullmatch(text.strip()))]
    parts = {unit: number for unit, number in matches[0].groupdict().items() if number} if matches else {}
    if not parts:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration: write 90m, 36h, 7d, or ISO 8601 such as P7DT12H")
    return round(sum(float(number) * _UNITS_MS[unit] for unit, number in parts.items()))


def read_file(path: Path, group: str) -> dict[TopicPartition, int]:
    """The offsets in a CSV file: lines of topic,partition,offset, or the same with the group in front."""
    offsets: dict[TopicPartition, int] = {}
    for number, row in enumerate(_rows(path), 1):
        if not any(cell.strip() for cell in row):
            continue
        name, key, offset = _read_row(row, f"{path}, line {number}", group)
        if name != group:
            continue
        if key in offsets:
            raise OttlaError(f"{path}, line {number}: partition {key} is there twice")
        offsets[key] = offset
    if not offsets:
        raise OttlaError(f"{path} has no offsets for group {group!r}: write lines of topic,partition,offset")
    return offsets


def _rows(path: Path) -> Iterator[list[str]]:
    try:
        # Spreadsheets begin their files with a byte order mark.
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from csv.reader(file)
    except (UnicodeDecodeError, csv.Error) as error:
        raise OttlaError(f"{path} is no CSV in UTF-8: {error}") from None


def _read_row(row: Sequence[str], where: str, group: str) -> tuple[str, TopicPartition, int]:
    cells = [cell.strip() for cell in row]
    if len(cells) not in (3, 4):
        raise OttlaError(f"{where}: {len(cells)} fields instead of topic,partition,offset")
    topic, partition, offset = cells[-3:]
    if not partition.isdecimal() or not offset.isdecimal():
        raise OttlaError(
            f"{where}: partition and offset must be whole numbers from 0 on, not {partition!r}, {offset!r}"
        )
    return cells[0] if len(cells) == 4 else group, TopicPartition(topic, int(partition)), int(offset)
