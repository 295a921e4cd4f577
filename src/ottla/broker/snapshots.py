"""Snapshots of a broker's data, from which other brokers start."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Self

from ottla.errors import OttlaError
from ottla.runtime.temporary import make_temporary, remove_with

JOURNAL = "metadata.journal"
#: Files that each broker makes for itself.
_LEFT_OUT = (".lock",)


class Snapshot:
    """The data of a stopped broker. Any number of brokers can start from it.

    >>> from ottla import Broker, Producer
    >>> with Broker() as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
    ...     _ = producer.send("orders", b"prepared").get(10)
    ...     prepared = broker.snapshot()
    >>> with Broker(from_snapshot=prepared) as broker:
    ...     [record.value for record in broker.topics["orders"].records()]
    [b'prepared']
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        """The directory with the data."""

    def __repr__(self) -> str:
        return f"<snapshot in {self.path}>"

    @classmethod
    def given(cls, source: Snapshot | str | Path) -> Snapshot:
        """Return a snapshot, also for its path. OttlaError if there is none."""
        snapshot = source if isinstance(source, Snapshot) else cls(Path(source))
        if not (snapshot.path / JOURNAL).is_file():
            raise OttlaError(
                f"{snapshot.path} is not a snapshot: make one with broker.snapshot({str(snapshot.path)!r})"
            )
        return snapshot

    @classmethod
    def copy(cls, source: Path, target: Path | None) -> Self:
        """Copy the data directory of a stopped broker."""
        if target is not None and target.exists() and any(target.iterdir()):
            raise OttlaError(f"{target} is not empty: give a new directory for the snapshot")
        snapshot = cls(target or make_temporary())
        _copy(source, snapshot.path)
        if target is None:
            remove_with(snapshot, snapshot.path)
        return snapshot

    def restore(self, directory: Path) -> None:
        """Copy the data to an empty directory."""
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise OttlaError(f"{directory} is not empty: a snapshot can only be restored to a new directory")
        _copy(self.path, directory)


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, dirs_exist_ok=True, ignore=lambda _, names: {*_LEFT_OUT} & {*names})
