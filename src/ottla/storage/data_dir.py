"""A data directory: taken by one broker at a time, and marked with whose it is.

`.lock` holds the lock, `meta.properties` the ids, in Kafka's format. The lock is taken in both of the ways
that there are: `flock` keeps out a second broker in the same process, `lockf` is what Java's file locks
are.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from pathlib import Path

from ottla.errors import OttlaError
from ottla.storage.checkpoints import uuid_text
from ottla.storage.files import write_atomically

_META = "meta.properties"


class DataDirInUse(OttlaError):
    """Another broker has this data directory."""


class DataDirMismatch(OttlaError):
    """The data directory belongs to another broker."""


class DataDir:
    """One data directory, locked or not."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = -1

    def lock(self, node_id: int) -> None:
        """Create the directory if need be, take its lock, and check that it is this broker's."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise OttlaError(f"cannot use {self.path} as a data directory: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(self._lock, 32, 0).decode(errors="replace").strip()
            self.unlock()
            who = f" (process {holder})" if holder.isdigit() else ""
            raise DataDirInUse(
                f"the data directory {self.path} is used by another broker{who}; stop that one, or give this one "
                "another directory"
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)
        self._check_owner(node_id)

    def unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _check_owner(self, node_id: int) -> None:
        path = self.path / _META
        try:
            lines = path.read_text("utf-8").splitlines()
        except FileNotFoundError:
            text = f"#\nversion=1\nnode.id={node_id}\ndirectory.id={uuid_text(uuid.uuid4())}\n"
            write_atomically(path, text.encode(), sync=False)
            return
        found = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
        owner = found.get("node.id", found.get("broker.id", str(node_id)))
        if owner != str(node_id):
            self.unlock()
            raise DataDirMismatch(
                f"the data directory {self.path} belongs to the broker with node.id {owner}, but this one has "
                f"{node_id}; use the right directory, or remove {path} if it is really to change hands"
            )
