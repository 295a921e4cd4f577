"""The progress of the last run, in the checkpoint directory: who did not start the run can show it, too.

    save(pipeline, board, started_at=now)      # about once per second while it runs
    stored_run(pipeline).flows[0].recent[-1].seconds

Only local checkpoint directories have it. Spark and the next run do not need it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from ottla.errors import OttlaError
from ottla.spark.pipelines.declaration import Pipeline
from ottla.spark.pipelines.places import place
from ottla.spark.pipelines.progress import Batch, Board
from ottla.types import Millis

FILE = "progress.json"


class StoredRunError(OttlaError):
    """The progress of the last run cannot be read."""


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A finished micro-batch; the fields are those of `Batch`."""

    number: int
    rows: int
    written: int | None
    seconds: float
    lag: int | None
    at: Millis
    watermark: Millis | None = None

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class StoredFlow:
    """A flow since the start of the run."""

    name: str
    state: str
    batches: int
    rows: int
    written: int | None
    writes_dead_letters: bool = False
    recent: tuple[StoredBatch, ...] = ()
    """The last batches, the oldest first."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run, as far as it had come when it was saved."""

    started_at: Millis
    saved_at: Millis
    flows: tuple[StoredFlow, ...]
    ending: str | None = None
    """How it ended: done, stopped, failed or limit_exceeded. None while it runs, and after a crash."""
    cause: str | None = None
    """Why it failed."""


def save(
    pipeline: Pipeline,
    board: Board,
    *,
    started_at: Millis,
    now: Millis,
    ending: str | None = None,
    cause: str | None = None,
) -> None:
    """Replace the stored progress."""
    where = place(pipeline.path(pipeline.checkpoint))
    if where is None:
        return
    flows = tuple(
        StoredFlow(
            one.name,
            one.state,
            one.batches,
            one.rows,
            one.reported_written,
            one.writes_dead_letters,
            tuple(map(_stored, board.recent(one.name))),
        )
        for one in board.flows()
    )
    run = StoredRun(started_at, now, flows, ending, cause)
    where.replace(FILE, json.dumps(asdict(run), ensure_ascii=False) + "\n")


def _stored(one: Batch) -> StoredBatch:
    return StoredBatch(one.number, one.rows, one.written, one.seconds, one.lag, one.at, one.watermark)


def stored_run(pipeline: Pipeline) -> StoredRun | None:
    """The progress of the last run; None if there was none, or if the checkpoint is not local."""
    where = place(pipeline.path(pipeline.checkpoint))
    text = None if where is None else where.read(FILE)
    if text is None:
        return None
    try:
        found = json.loads(text)
        flows = tuple(_flow(one) for one in found.pop("flows"))
        return StoredRun(flows=flows, **found)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise StoredRunError(
            f"{pipeline.path(pipeline.checkpoint)}/{FILE} is damaged; the next run replaces it"
        ) from None


def _flow(found: dict[str, object]) -> StoredFlow:
    recent = found.pop("recent")
    assert isinstance(recent, list)
    return StoredFlow(**found, recent=tuple(StoredBatch(**one) for one in recent))  # type: ignore[arg-type]
