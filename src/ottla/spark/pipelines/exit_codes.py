"""The exit codes of ``ottla pipeline run``. Help and docs/pipelines.md are made from `TABLE`.

>>> print(as_text().splitlines()[0])
  0    done: with --once, or a trigger that ends, all current records were processed
"""

from __future__ import annotations

import signal
import textwrap
from dataclasses import dataclass

DONE = 0
FAILED = 1
WRONG = 2
RUNS_ALREADY = 3
LIMIT_EXCEEDED = 4
DATA_REFUSED = 5
OUTPUT_REFUSED = 6


def stopped_by(number: int) -> int:
    """The code after a signal, as shells report it.

    >>> stopped_by(signal.SIGTERM)
    143
    """
    return 128 + number


@dataclass(frozen=True, slots=True)
class ExitCode:
    """One row of the table."""

    code: int
    meaning: str
    retry: str
    """What a scheduler should do."""


TABLE = (
    ExitCode(DONE, "done: with --once, or a trigger that ends, all current records were processed", "go on"),
    ExitCode(
        FAILED,
        "a flow failed and the others were stopped, Spark did not start, or the broker or the schema registry was "
        "not reachable; stderr has the reason, OTTLA_DEBUG=1 shows the details",
        "retry",
    ),
    ExitCode(WRONG, "wrong usage, or problems in the declaration; nothing was read", "do not retry: fix the file"),
    ExitCode(RUNS_ALREADY, "the pipeline is already running with this checkpoint", "retry later"),
    ExitCode(
        LIMIT_EXCEEDED,
        "too many rows broke a rule, there were too many dead letters, or all records of a source were broken; later "
        "runs end with this code, too, until you change the rule, its limit or the schema, or use --accept-limits",
        "do not retry: look at the data",
    ),
    ExitCode(
        DATA_REFUSED,
        "a row broke a rule with otherwise = fail, or a record was broken and there are no dead letters; its batch "
        "was not written, and later runs stop at the same place",
        "do not retry: look at the data",
    ),
    ExitCode(
        OUTPUT_REFUSED,
        "the output of a sink does not belong to its checkpoint: one of them is new, from a backup, or of another "
        "pipeline; or steps that keep state have changed; nothing was written by this sink",
        "do not retry: reset the sink or restore both",
    ),
    ExitCode(stopped_by(signal.SIGINT), "stopped by Ctrl-C (SIGINT)", "start it again when you like"),
    ExitCode(stopped_by(signal.SIGTERM), "stopped by SIGTERM", "start it again when you like"),
)


def as_text() -> str:
    """The table for `--help`."""
    return "\n".join(
        textwrap.fill(one.meaning, 110, initial_indent=f"  {one.code:<5}", subsequent_indent=" " * 7) for one in TABLE
    )


def as_markdown() -> str:
    """The table for the documentation."""
    rows = [f"| {one.code} | {one.meaning[0].upper() + one.meaning[1:]}. | {one.retry} |" for one in TABLE]
    return "\n".join(["| code | meaning | a scheduler should |", "| --- | --- | --- |", *rows]) + "\n"
