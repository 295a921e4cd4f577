"""Disks in memory: what a replica has written, and what of it would survive the loss of its machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.storage.epochs import LeaderEpochCache


class Entry(NamedTuple):
    """A record of a partition."""

    epoch: int
    value: object


class Epochs(LeaderEpochCache):
    """The real cache of leader epochs, without its file."""

    def __init__(self) -> None:
        super().__init__("")

    def write(self) -> None:
        """Keep everything in memory."""


class ReplicaLog:
    """The log of one replica, as `ottla.replication` sees a log."""

    def __init__(self) -> None:
        self.entries: list[Entry | None] = []
        """By offset; None below the start of a log that does not begin at 0."""
        self.log_start_offset = 0
        self.flushed = 0
        """Offsets below this one are on the disk itself."""
        self.epochs = Epochs()
        self.agreed = 0
        """How far the log is known to agree with the committed records. The invariants move it."""

    @property
    def log_end_offset(self) -> int:
        return len(self.entries)

    @property
    def latest_epoch(self) -> int:
        return self.epochs.latest

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.epochs.end_offset_for_epoch(epoch, len(self.entries))

    def epoch_of(self, offset: int) -> int:
        return self.epochs.epoch_of(offset)

    def begin_epoch(self, epoch: int) -> None:
        """A new leadership begins here."""
        self.epochs.assign(epoch, len(self.entries))

    def append(self, entry: Entry) -> None:
        if entry.epoch > self.epochs.latest:
            self.epochs.assign(entry.epoch, len(self.entries))
        self.entries.append(entry)

    def read(self, offset: int, end: int) -> list[Entry]:
        """Return the entries from an offset up to an end."""
        return self.entries[offset:end]  # type: ignore[return-value]

    def truncate_to(self, end: int) -> None:
        """Remove everything from an offset on, with the epochs that begin there."""
        end = max(end, self.log_start_offset)
        if end <= len(self.entries):
            del self.entries[end:]
            self.epochs.truncate_from_end(end)
            self.flushed = min(self.flushed, end)
            self.agreed = min(self.agreed, end)

    def restart_at(self, offset: int) -> None:
        """Become an empty log that begins at an offset."""
        self.entries = [None] * offset
        self.epochs = Epochs()
        self.log_start_offset = self.flushed = self.agreed = offset

    def delete_before(self, offset: int) -> None:
        """Move the start of the log, as retention does."""
        if self.log_start_offset < offset <= len(self.entries):
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)

    def flush(self) -> None:
        self.flushed = len(self.entries)

    def lose_unflushed(self) -> int:
        """Lose what was not flushed. Return the number of lost records."""
        lost = len(self.entries) - self.flushed
        self.truncate_to(self.flushed)
        return lost


@dataclass
class Disk:
    """What a machine keeps when its broker ends."""

    logs: dict[int, ReplicaLog] = field(default_factory=dict)
    """By partition."""
    watermarks: dict[int, int] = field(default_factory=dict)
    """The checkpoint of high watermarks, which lags."""
    clean_epoch: int = -1
    """The broker epoch in the file of a clean shutdown, else -1."""
    life_epoch: int = -1
    """The broker epoch of the last life since the machine was started (`broker.life`), else -1."""
