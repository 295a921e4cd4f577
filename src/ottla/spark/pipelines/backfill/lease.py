"""A lock in a directory that only Spark can reach: a file that its holder writes again every few seconds.

Nothing releases the lock of a killed process there. So a file that does not change for a while is taken over. Only
changes count, and no times: the clocks of two machines may differ.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from uuid import uuid4

from ottla.spark.pipelines.places import Place
from ottla.spark.pipelines.run_lock import FILE, AlreadyRunning, Holder

BEAT_SECONDS = 5.0
STALE_SECONDS = 20.0
_LOOK_SECONDS = 0.5


@contextmanager
def lease(
    directory: Place, *, beat: float = BEAT_SECONDS, stale: float = STALE_SECONDS
) -> Iterator[Callable[[], None]]:
    """Hold the lock of a directory; yields a function that raises AlreadyRunning if another process has taken it.

    Raises AlreadyRunning if another process holds it. The lock of a killed process is taken over after `stale` seconds.
    """
    held = _Lease(directory, beat)
    held.take(stale)
    try:
        yield held.check
    finally:
        held.release()


class _Lease:
    def __init__(self, directory: Place, beat: float) -> None:
        self._directory = directory
        self._beat = beat
        self._id = uuid4().hex
        self._who = asdict(Holder(os.getpid(), socket.gethostname(), time.time_ns() // 1_000_000))
        self._ended = threading.Event()
        #: While a file is replaced, it may be missing for a moment.
        self._file = threading.Lock()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)

    def take(self, stale: float) -> None:
        if not self._directory.create(FILE, self._text(0)):
            self._await_end(stale)
            self._directory.remove(FILE)
            if not self._directory.create(FILE, self._text(0)):
                raise self._refusal()
            # Another process may have waited for the same end, and have removed this file: the last one has it.
            self._ended.wait(self._beat)
            self.check()
        self._thread.start()

    def check(self) -> None:
        """Raise AlreadyRunning if another process has the lock now."""
        if not self._is_own():
            raise self._refusal()

    def release(self) -> None:
        self._ended.set()
        self._thread.join()
        if self._is_own():
            self._directory.remove(FILE)

    def _await_end(self, stale: float) -> None:
        """Return when the file has not changed for so long, or is gone; raise AlreadyRunning if it changes."""
        first, deadline, gone = self._directory.read(FILE), time.monotonic() + stale, 0
        while time.monotonic() < deadline and gone < 2:  # once: it is being replaced
            self._ended.wait(min(_LOOK_SECONDS, self._beat))
            now = self._directory.read(FILE)
            gone = gone + 1 if now is None else 0
            if now not in (None, first):
                raise self._refusal()

    def _keep(self) -> None:
        count = 0
        while not self._ended.wait(self._beat) and self._is_own():
            count += 1
            with self._file:
                self._directory.replace(FILE, self._text(count))

    def _is_own(self) -> bool:
        with self._file:
            return self._read().get("id") == self._id

    def _read(self) -> dict[str, object]:
        try:
            found = json.loads(self._directory.read(FILE) or "")
        except ValueError:
            return {}  # it is being written
        return found if isinstance(found, dict) else {}

    def _refusal(self) -> AlreadyRunning:
        found = self._read()
        try:
            who = f" ({Holder(int(str(found['pid'])), str(found['host']), int(str(found['since'])))})"
        except (KeyError, ValueError):
            who = ""
        return AlreadyRunning(f"another process has the lock{who}")

    def _text(self, count: int) -> str:
        return json.dumps({**self._who, "id": self._id, "beat": count})
