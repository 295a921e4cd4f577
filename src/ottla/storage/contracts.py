"""The values that a log returns, and the interface that it needs from its owner."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.errors import KafkaStorageError
from ottla.storage.files import sync_path
from ottla.storage.open_files import OpenFile
from ottla.types import Millis

if TYPE_CHECKING:
    from ottla.storage.log import Log


class AppendInfo(NamedTuple):
    """The result of an append."""

    base_offset: int
    last_offset: int
    log_append_time: Millis
    """-1 if the topic keeps the producers' timestamps."""
    log_start_offset: int
    duplicate: bool
    """The batch was written before; the offsets are the original ones."""


class LogHost(Protocol):
    """What a log calls in its owner."""

    def rolled(self, log: Log) -> None:
        """A segment is complete: flush it soon."""

    def delete_later(self, paths: Sequence[str], *, at: Millis) -> None:
        """Remove these files, which are already renamed to `.deleted`, at the given time."""

    def start_moved(self, log: Log) -> None:
        """The log start offset has changed: write the checkpoint soon."""

    def start_lowered(self, log: Log) -> None:
        """Write the log start offsets down now: an old one would hide what is appended below it."""

    def truncated(self, log: Log, *, below_recovery_point: bool) -> None:
        """The log is about to end earlier. Write the offsets down that are too high, before it is appended to again."""

    def failed(self, log: Log, error: KafkaStorageError) -> None:
        """The disk has failed while the log was written."""


class FlushJob(NamedTuple):
    """The files to force to disk so that everything below `offset` is safe. Any thread may call `run`."""

    files: list[OpenFile]
    paths: list[str]
    offset: int
    truncations: int
    """How often the log was truncated before: a later truncation makes the job worthless."""

    def run(self) -> None:
        try:
            for file in self.files:
                os.fdatasync(file.fd)
            for path in self.paths:
                sync_path(path)
        except OSError as error:
            raise KafkaStorageError(f"cannot force data to disk: {error.strerror}") from error
