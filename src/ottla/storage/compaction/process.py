"""The compaction process: ``python -m ottla.storage.compaction.process``. It reads jobs from standard input.

A job is one line, a `CleaningJob` as JSON. The response is one line per compacted segment, ``{"segment": …}``, and a
last line, ``{"clean_offset": …}`` or ``{"error": …}``. The broker waits for it before it sends the next job. The
process ends at the end of its input. It does not block the broker's interpreter, and runs with low priority.
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
    """The broker has ended: files written now could conflict with the next one."""


class _Pace:
    """Limits the bytes per second, and stops when the broker has ended."""

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
    """Run one job and write its responses."""
    pace = _Pace(message["bytes_per_second"])
    try:
        for result in clean(CleaningJob.from_json(message["job"]), pace):
            if isinstance(result, int):
                _respond(output, {"clean_offset": result})
            else:
                _respond(output, {"segment": asdict(result)})
    except (SegmentDamaged, CorruptBatch) as error:
        _respond(output, {"error": str(error)})
    except OSError as error:
        _respond(output, {"error": f"{error.strerror}: {error.filename}"})


def _respond(output: IO[str], message: dict[str, Any]) -> None:
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
