"""Memory that the machine has before a measurement begins.

A virtual machine may give free memory back to its host, a few seconds after it became free. Whoever needs it next
pays for every page again, in the time of the process that writes it: two to three seconds a GB, four times what a
broker takes for the data, and now one of those compared pays, now the other. On a machine that has run for long
there is hardly any free memory: it holds pages of files, which are taken over as they are. So the page cache is filled
before each round that needs much memory.
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
    """A file of zeros that takes no disk, as large as the memory that is free; empty where free memory is kept."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 (it is there until the end of the process)
    size = max(0, _free() - LEFT_FREE) if GIVES_BACK.exists() else 0
    file.truncate(size)
    return file, size


def fill_page_cache() -> None:
    """Leave little memory free: some forty seconds at first, one later, when most of the file is still there."""
    file, size = _zeros()
    buffer = memoryview(bytearray(PIECE))
    for position in range(0, size, PIECE):
        os.preadv(file.fileno(), [buffer], position)


def _free() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    (free,) = [int(line.split()[1]) for line in lines if line.startswith("MemFree:")]
    return free * 1024
