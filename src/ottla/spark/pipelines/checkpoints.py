"""Read the checkpoint of a query without Spark.

metadata    {"id": "…"}: the id of the query
offsets/7   v1, a line of settings with the time, a line for each source: {"orders": {"0": 42}}     batch 7 is planned
commits/7   v1, a line                                                                              batch 7 is finished
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from ottla.errors import OttlaError
from ottla.spark.offsets import parse_offsets
from ottla.spark.options import Offsets
from ottla.spark.pipelines.places import Place, place
from ottla.types import Millis

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

METADATA = "metadata"


class CheckpointError(OttlaError):
    """A checkpoint cannot be read."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The progress of a query."""

    finished: int | None = None
    """The last finished batch."""
    finished_at: Millis | None = None
    offsets: Offsets = field(default_factory=dict)
    """The start of the next batch: the ends of the finished one, for all topics."""
    unfinished: int | None = None
    """A planned batch that is not finished: it is running now, or repeated by the next run."""
    unfinished_since: Millis | None = None


def read_checkpoint(directory: Path) -> Checkpoint | None:
    """Read a checkpoint directory; None if no query has used it yet."""
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


def as_of(checkpoint: Checkpoint, directory: Path, batch: int) -> Checkpoint:
    """The progress of a sink that has finished batch `batch` and none after it."""
    plan = directory / "offsets" / str(batch)
    return replace(
        checkpoint, finished=batch if batch >= 0 else None, offsets=_planned(plan)[0] if plan.exists() else {}
    )


def _last(directory: Path) -> int | None:
    """The number of the last log entry."""
    try:
        return max((int(one.name) for one in directory.iterdir() if one.name.isdecimal()), default=None)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointError(f"cannot read {directory}: {error.strerror}") from None


def _planned(file: Path) -> tuple[Offsets, Millis | None]:
    try:
        version, *lines = file.read_text("utf-8").splitlines()
    except OSError as error:
        raise CheckpointError(f"cannot read {file}: {error.strerror}") from None
    except (ValueError, UnicodeDecodeError):
        raise CheckpointError(f"{file} is damaged: it is not a checkpoint entry") from None
    if not version.startswith("v") or not lines:
        raise CheckpointError(f"{file} is damaged: it starts with {version[:20]!r}")
    found = re.search(r'"batchTimestampMs":\s*(\d+)', lines[0])
    return _offsets(lines[1:]), None if found is None else int(found[1])


def planned_offsets(text: str) -> Offsets:
    """The end offsets of a planned batch, from its entry in `offsets`.

    >>> planned_offsets('v1\\n{"batchTimestampMs": 1}\\n{"orders": {"0": 42}}')
    {TopicPartition(topic='orders', partition=0): 42}
    """
    return _offsets(text.splitlines()[2:])


def _offsets(lines: Iterable[str]) -> Offsets:
    found: Offsets = {}
    for line in lines:
        found |= parse_offsets(line) or {}
    return found


def last_planned(names: Iterable[str]) -> int:
    """The last batch in the names of `offsets`, which has every batch that was ever started; -1 for a new checkpoint.

    >>> last_planned(["0", "10", ".10.crc", "9"]), last_planned([])
    (10, -1)
    """
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def read_id(checkpoint: Place, where: str) -> str | None:
    """The id of the query, which lasts as long as its checkpoint; None for a new checkpoint."""
    text = checkpoint.read(METADATA)
    if text is None:
        return None
    try:
        found = json.loads(text)["id"]
        return str(UUID(found))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CheckpointError(
            f'{where}/{METADATA} is damaged: it must contain {{"id": "…"}} with the id of the query, '
            + ("but it is empty" if not text.strip() else f"not {text[:40]!r}")
        ) from None


def query_id(spark: SparkSession, where: str) -> str:
    """The id of a query. For a new checkpoint, it is chosen here, and Spark adopts it when the query starts."""
    checkpoint = place(where, spark)
    if checkpoint is None:
        raise CheckpointError(f"cannot read the checkpoint {where} with Spark Connect: use a classic session")
    found = read_id(checkpoint, where)
    if found is None:
        checkpoint.create(METADATA, json.dumps({"id": str(uuid4())}))
        found = read_id(checkpoint, where)
    assert found is not None, "it was just created"
    return found
