"""Fill the page cache before a measurement.

A virtual machine may return free memory to its host after a few seconds. The next process that writes these pages
then needs two to three more seconds per GB, four times the cost of a broker, and it is random which of the compared
processes pays. A machine that has run for long has little free memory: the page cache uses it, and its pages are
reused without this cost. So each round that needs much memory starts with a full page cache.
"""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path
from typing import BinaryIO

GIVES_BACK = Path("/sys/module/page_reporting")
LEFT_FREE = 1 << 30
PIECE = 16 << 20


@cache
def _zeros() -> tuple[BinaryIO, int]:
    """Return a file of zeros without disk space, as large as the free memory. Empty if free memory is kept."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 (it is there until the end of the process)
    size = max(0, _free() - LEFT_FREE) if GIVES_BACK.exists() else 0
    file.truncate(size)
    return file, size


def fill_page_cache() -> None:
    """Leave little memory free. The first call takes about 40 seconds, later ones about one."""
    file, size = _zeros()
    buffer = memoryview(bytearray(PIECE))
    for position in range(0, size, PIECE):
        os.preadv(file.fileno(), [buffer], position)


def _free() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    (free,) = [int(line.split()[1]) for line in lines if line.startswith("MemFree:")]
    return free * 1024
