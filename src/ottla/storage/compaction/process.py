"""The process that compacts: ``python -m ottla.storage.compaction.process``. It takes jobs from its standard input.

A line is a `CleaningJob` as JSON. The answer is a line for every compacted segment, ``{"segment": …}``, and
a last one, ``{"clean_offset": …}`` or ``{"error": …}``. The broker waits for the answer before it sends the
next job, and the process ends with its input. Being a process of its own, compaction never stops the
broker's interpreter; being nice, it takes only the processor time that nobody else wants.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict
from typing import IO, Any

from ottla.records import CorruptBatch
from ottla.storage.compaction.cleaning import SegmentDamaged, clean
from ottla.storage.compaction.job import CleaningJob

_NICENESS = 10


class _Orphaned(Exception):
    """The broker is gone: whatever is written now would be in the way of its successor."""


class _Pace:
    """Keeps to a number of bytes a second, and stops when the broker has gone."""

    def __init__(self, bytes_per_second: float) -> None:
        self._rate = bytes_per_second
        self._parent = os.getppid()
        self._ahead_until = time.monotonic()

    def __call__(self, count: int) -> None:
        if os.getppid() != self._parent:
            raise _Orphaned
        now = time.monotonic()
        self._ahead_until = max(self._ahead_until, now) + count / self._rate
        if self._ahead_until > now + 0.1:
            time.sleep(self._ahead_until - now)


def run_job(message: dict[str, Any], output: IO[str]) -> None:
    """Do one job and write its answers."""
    pace = _Pace(message["bytes_per_second"])
    try:
        for result in clean(CleaningJob.from_json(message["job"]), pace):
            if isinstance(result, int):
                _answer(output, {"clean_offset": result})
            else:
                _answer(output, {"segment": asdict(result)})
    except (SegmentDamaged, CorruptBatch) as error:
        _answer(output, {"error": str(error)})
    except OSError as error:
        _answer(output, {"error": f"{error.strerror}: {error.filename}"})


def _answer(output: IO[str], message: dict[str, Any]) -> None:
    output.write(json.dumps(message, separators=(",", ":")) + "\n")
    output.flush()


def main() -> None:
    os.nice(_NICENESS)
    try:
        for line in sys.stdin:
            run_job(json.loads(line), sys.stdout)
    except (_Orphaned, BrokenPipeError, KeyboardInterrupt):
        os._exit(1)


if __name__ == "__main__":
    main()
