"""What Spark's checkpoint of a query tells without Spark: plain files, read and never changed.

offsets/7   v1, a line of settings with the time, a line for each source: {"orders": {"0": 42}}     batch 7 was planned
commits/7   v1, a line                                                                              batch 7 is finished
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ottla.errors import OttlaError
from ottla.spark.offsets import from_json
from ottla.spark.options import Offsets
from ottla.types import Millis


class CheckpointError(OttlaError):
    """A checkpoint cannot be read."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far a query is."""

    finished: int | None = None
    """The last batch that is finished."""
    finished_at: Millis | None = None
    offsets: Offsets = field(default_factory=dict)
    """Where the next batch begins: the ends of the finished one, of all sources that are topics."""
    unfinished: int | None = None
    """A batch that was planned and is not finished: it runs now, or is run again at the next start."""
    unfinished_since: Millis | None = None


def read_checkpoint(directory: Path) -> Checkpoint | None:
    """The state of a checkpoint directory; None if no query has used it yet."""
    planned, finished = _last(directory / "offsets"), _last(directory / "commits")
    if planned is None:
        return None
    unfinished = planned if finished is None or planned > finished else None
    since = None if unfinished is None else _planned(directory / "offsets" / str(planned))[1]
    if finished is None:
        return Checkpoint(unfinished=unfinished, unfinished_since=since)
    commit, plan = directory / "commits" / str(finished), directory / "offsets" / str(finished)
    offsets = _planned(plan)[0] if plan.exists() else {}
    return Checkpoint(finished, commit.stat().st_mtime_ns // 1_000_000, offsets, unfinished, since)


def _last(directory: Path) -> int | None:
    """The number of the last entry of a log; files of other names are of no interest."""
    try:
        return max((int(one.name) for one in directory.iterdir() if one.name.isdecimal()), default=None)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointError(f"{directory} cannot be read: {error.strerror}") from None


def _planned(file: Path) -> tuple[Offsets, Millis | None]:
    try:
        version, *lines = file.read_text("utf-8").splitlines()
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, UnicodeDecodeError):
        raise CheckpointError(f"{file} is damaged: it is no entry of a checkpoint") from None
    if not version.startswith("v") or not lines:
        raise CheckpointError(f"{file} is damaged: it begins with {version[:20]!r}")
    settings = _json(lines[0])
    at = settings.get("batchTimestampMs") if isinstance(settings, dict) else None
    offsets: Offsets = {}
    for line in lines[1:]:
        value = _json(line)
        if isinstance(value, dict) and all(_is_partitions(one) for one in value.values()):
            offsets |= from_json(value)
    return offsets, at


def _json(line: str) -> Any:
    """What a line has; the sources of other kinds have forms of their own, and "-" is nothing."""
    try:
        return json.loads(line)
    except ValueError:
        return None


def _is_partitions(value: Any) -> bool:
    return isinstance(value, dict) and all(name.isdecimal() and type(offset) is int for name, offset in value.items())
