"""Memory that is there before a measurement begins.

A virtual machine may give free memory back to its host. Whoever needs it next pays for every page again, in the time of
the process that writes it: two to three seconds a GB, four times what a broker takes for the data. The kernel hands out
first what was freed last, so what is about to be written is taken and freed once, before the clock runs.
"""

from __future__ import annotations

import mmap

POPULATE_WRITE = 23  # MADV_POPULATE_WRITE: Python has no name for it yet
PIECE = 1 << 28


def touch(size: int) -> None:
    """Have so many bytes of memory backed by the machine, and free them again."""
    with mmap.mmap(-1, max(size, PIECE)) as area:
        try:
            area.madvise(POPULATE_WRITE)
        except OSError:  # an older Linux
            for position in range(0, len(area), mmap.PAGESIZE):
                area[position] = 1
