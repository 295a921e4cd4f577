"""Allow only one run of a pipeline at a time, with a lock file in the checkpoint directory.

The operating system releases the lock when the process ends. `holder` returns the current run.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlparse

from ottla.errors import OttlaError
from ottla.types import Millis

FILE = "run.lock"


class AlreadyRunning(OttlaError):
    """Another run uses the same checkpoint."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The run that holds the lock."""

    pid: int
    host: str
    since: Millis

    def __str__(self) -> str:
        return (
            f"process {self.pid} on {self.host}, since {time.strftime('%H:%M:%S', time.localtime(self.since / 1000))}"
        )


def local_path(place: str) -> Path | None:
    """The path of a local checkpoint directory; None for other file systems.

    >>> local_path("file:///tmp/state"), local_path("hdfs://host/state")
    (PosixPath('/tmp/state'), None)
    """
    if not re.match(r"[A-Za-z][\w+.-]+:", place):
        return Path(place)
    parts = urlparse(place)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


@contextmanager
def run_lock(checkpoint: str) -> Iterator[None]:
    """Hold the lock of a checkpoint directory; raises AlreadyRunning if another run holds it.

    Other file systems have no lock: Spark itself detects two queries with the same checkpoint.
    """
    directory = local_path(checkpoint)
    if directory is None:
        yield
        return
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = (directory / FILE).open("a+", encoding="utf-8")
    except OSError as error:
        raise OttlaError(f"cannot use the checkpoint directory {directory}: {error.strerror}") from None
    with file:
        if not _taken(file, fcntl.LOCK_EX):
            who = _read(file)
            raise AlreadyRunning(
                f"the pipeline is already running with checkpoint {directory}" + ("" if who is None else f" ({who})")
            )
        file.truncate(0)
        json.dump(asdict(Holder(os.getpid(), socket.gethostname(), time.time_ns() // 1_000_000)), file)
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def holder(checkpoint: str) -> Holder | None:
    """The run that uses this checkpoint now."""
    directory = local_path(checkpoint)
    if directory is None:
        return None
    try:
        file = (directory / FILE).open("r", encoding="utf-8")
    except OSError:
        return None
    with file:
        return None if _taken(file, fcntl.LOCK_SH) else _read(file)


def _taken(file: IO[str], how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _read(file: IO[str]) -> Holder | None:
    file.seek(0)
    try:
        return Holder(**json.loads(file.read()))
    except (ValueError, TypeError):
        return None  # it is being written
