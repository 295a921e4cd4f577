"""The scenarios of ``ottla groups reset-offsets``: compute new offsets, without changing anything.

A scenario chooses an offset for each partition; `plan` limits it to the partition's range.
"""

from __future__ import annotations

import csv
import time
from argparse import Namespace
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.values import OffsetSpec
from ottla.consuming.values import OffsetAndMetadata
from ottla.errors import OttlaError
from ottla.types import Millis, TopicPartition


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
    """The input of a scenario."""

    admin: AsyncAdmin
    partitions: Sequence[TopicPartition]
    committed: Mapping[TopicPartition, OffsetAndMetadata]
    ends: Mapping[TopicPartition, Ends]


async def situation_of(
    admin: AsyncAdmin, partitions: Sequence[TopicPartition], committed: dict[TopicPartition, OffsetAndMetadata]
) -> Situation:
    """Ask for the bounds of these partitions."""
    starts = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST))
    ends = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
    return Situation(
        admin, partitions, committed, {key: Ends(starts[key].offset, ends[key].offset) for key in partitions}
    )


Wanted = dict[TopicPartition, tuple[int, str]]
"""An offset for each partition, and a note about it."""
Scenario = Callable[[Situation, Namespace], Awaitable[Wanted]]


async def plan(situation: Situation, args: Namespace) -> list[Planned]:
    """The new offset of each partition."""
    wanted = await scenario_of(args)(situation, args)
    return [_planned(key, situation, *wanted[key]) for key in situation.partitions]


def _planned(key: TopicPartition, situation: Situation, wanted: int, note: str) -> Planned:
    committed, ends = situation.committed.get(key), situation.ends[key]
    current = committed.offset if committed is not None else None
    new = min(max(wanted, ends.start), ends.end)
    if wanted > ends.end:
        note = f"{wanted} is after the end: using the end, {ends.end}"
    elif wanted < ends.start:
        note = f"{wanted} is before the start: using the start, {ends.start}"
    return Planned(key, current, new, note)


def scenario_of(args: Namespace) -> Scenario:
    """The scenario chosen on the command line."""
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
        key: (one.offset, "") if one is not None else (situation.ends[key].end, "no committed offset: using the end")
        for key, one in found.items()
    }


async def _shift(situation: Situation, args: Namespace) -> Wanted:
    missing = [str(key) for key in situation.partitions if key not in situation.committed]
    if missing:
        raise OttlaError(
            f"--shift-by needs committed offsets, and the group has none for {', '.join(missing)}: "
            "exclude these with --topic TOPIC:P,P, or use --to-offset"
        )
    return {key: (situation.committed[key].offset + args.shift_by, "") for key in situation.partitions}


async def _timestamp(situation: Situation, args: Namespace) -> Wanted:
    return await _at(situation, args.to_timestamp)


async def _duration(situation: Situation, args: Namespace) -> Wanted:
    return await _at(situation, time.time_ns() // 1_000_000 - args.by_duration)


async def _at(situation: Situation, timestamp: Millis) -> Wanted:
    found = await situation.admin.list_offsets(dict.fromkeys(situation.partitions, max(timestamp, 0)))
    return {
        key: (one.offset, "")
        if one.offset >= 0
        else (situation.ends[key].end, "no record at or after this time: using the end")
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


# the file


def read_file(path: Path, group: str) -> dict[TopicPartition, int]:
    """Read a CSV file with lines of topic,partition,offset or group,topic,partition,offset."""
    offsets: dict[TopicPartition, int] = {}
    for number, row in enumerate(_rows(path), 1):
        if not any(cell.strip() for cell in row):
            continue
        name, key, offset = _read_row(row, f"{path}, line {number}", group)
        if name != group:
            continue
        if key in offsets:
            raise OttlaError(f"{path}, line {number}: partition {key} appears twice")
        offsets[key] = offset
    if not offsets:
        raise OttlaError(f"{path} has no offsets for group {group!r}: write lines of topic,partition,offset")
    return offsets


def _rows(path: Path) -> Iterator[list[str]]:
    try:
        # Spreadsheets write a byte order mark.
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from csv.reader(file)
    except (UnicodeDecodeError, csv.Error) as error:
        raise OttlaError(f"{path} is not a UTF-8 CSV file: {error}") from None


def _read_row(row: Sequence[str], where: str, group: str) -> tuple[str, TopicPartition, int]:
    cells = [cell.strip() for cell in row]
    if len(cells) not in (3, 4):
        raise OttlaError(f"{where}: expected topic,partition,offset but found {len(cells)} fields")
    topic, partition, offset = cells[-3:]
    if not partition.isdecimal() or not offset.isdecimal():
        raise OttlaError(f"{where}: partition and offset must be whole numbers >= 0, not {partition!r}, {offset!r}")
    return cells[0] if len(cells) == 4 else group, TopicPartition(topic, int(partition)), int(offset)
