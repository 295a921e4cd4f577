"""A data directory: locked by one broker at a time, and marked with its node id.

`.lock` holds the lock, `meta.properties` the ids, in Kafka's format. Two kinds of locks are taken: `flock` keeps out a
second broker in the same process, `lockf` is what Java uses.
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
    """Another broker uses this data directory."""


class DataDirMismatch(OttlaError):
    """The data directory belongs to another broker."""


class DataDirUnusable(OttlaError):
    """The data directory cannot be read or written."""

    @classmethod
    def because(cls, path: Path, error: OSError) -> DataDirUnusable:
        reason = "it is a file" if isinstance(error, FileExistsError) else error.strerror
        return cls(f"cannot use {path} as a data directory: {reason}")


class DataDir:
    """One data directory. `user` says in errors who else may use it."""

    def __init__(self, path: Path, *, user: str = "broker") -> None:
        self.path = path
        self._user = user
        self._lock = -1

    def lock(self, node_id: int) -> None:
        """Create the directory if it is missing, lock it, and check its owner."""
        try:
            self._check_no_cluster()
            self._lock_file()
            self._check_owner(node_id)
        except OSError as error:
            self.unlock()
            raise DataDirUnusable.because(self.path, error) from error

    def hold(self) -> None:
        """Lock the directory, whoever owns it."""
        try:
            self._lock_file()
        except OSError as error:
            self.unlock()
            raise DataDirUnusable.because(self.path, error) from error

    def _lock_file(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            holder = os.pread(self._lock, 32, 0).decode(errors="replace").strip()
            self.unlock()
            who = f" (process {holder})" if holder.isdigit() else ""
            raise DataDirInUse(
                f"another {self._user}{who} uses the data directory {self.path}; stop it, or use another data directory"
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    @property
    def has_owner(self) -> bool:
        """Whether a broker has used the directory."""
        return (self.path / _META).exists()

    def _check_no_cluster(self) -> None:
        """The directories of the brokers of `ottla.Cluster` would look like partitions of a topic `broker`."""
        if next(self.path.glob(f"broker-*/{_META}"), None) is not None:
            raise DataDirMismatch(
                f"{self.path} has the data of a cluster: start it with `ottla cluster start --data-dir {self.path}`, "
                "or use another data directory"
            )

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
                f"the data directory {self.path} belongs to node.id {owner}, but this broker has node.id {node_id}; "
                f"use the directory of this broker, or remove {path} to reassign it"
            )
