"""The CPU time and peak memory of a process tree, by kind of process.

    with Watch(os.getpid(), without=broker.pid) as watch:
        …
    watch.seconds["java"], watch.peak["python"]

A process that ends early counts with its last sample. Memory is the proportional set size: a page that several
processes share, such as a library, counts once. So the sum is what the machine really gives.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Self

JAVA, PYTHON = "java", "python"
EVERY_SECONDS = 0.05
MEMORY_EVERY = 4
"""Memory is looked at less often, because the kernel walks through all pages."""
_TICKS = os.sysconf("SC_CLK_TCK")


class Watch:
    """Sample the descendants of a process, but not the process itself, until the block ends."""

    def __init__(self, root: int, *, without: int) -> None:
        self._root, self._without = root, without
        self._used: dict[int, tuple[str, float, float]] = {}
        self._over = threading.Event()
        self._samples = 0
        self._thread = threading.Thread(target=self._sample_often, daemon=True)
        self.peak = {JAVA: 0, PYTHON: 0}

    def __enter__(self) -> Self:
        self._sample(first=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._sample()

    @property
    def seconds(self) -> dict[str, float]:
        found = {JAVA: 0.0, PYTHON: 0.0}
        for kind, before, now in self._used.values():
            found[kind] += now - before
        return found

    def _sample_often(self) -> None:
        while not self._over.wait(EVERY_SECONDS):
            self._sample()

    def _sample(self, *, first: bool = False) -> None:
        memory = dict.fromkeys(self.peak, 0)
        self._samples += 1
        for pid in self._tree()[1:]:
            try:
                name, fields = _stat(pid)
            except OSError:
                continue
            kind = JAVA if name == "java" else PYTHON if name.startswith("python") else None
            if kind is None:  # a short-lived fork of Java with all of its memory and the name of a thread
                continue
            used = (int(fields[11]) + int(fields[12])) / _TICKS
            before = self._used[pid][1] if pid in self._used else used if first else 0.0
            self._used[pid] = (kind, before, used)
            if self._samples % MEMORY_EVERY == 1:
                memory[kind] += _proportional(pid)
        for kind, size in memory.items():
            self.peak[kind] = max(self.peak[kind], size)

    def _tree(self) -> list[int]:
        found = [self._root]
        for parent in found:
            try:
                for task in Path(f"/proc/{parent}/task").iterdir():
                    found += [int(pid) for pid in (task / "children").read_text().split() if int(pid) != self._without]
            except OSError:
                continue
        return found


def _stat(pid: int) -> tuple[str, list[str]]:
    head, _, tail = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    return head.partition("(")[2], tail.split()


def _proportional(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)
