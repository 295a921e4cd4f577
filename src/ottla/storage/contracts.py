"""What a log gives to those who use it, and what it asks of its surroundings."""

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
    """What became of an append."""

    base_offset: int
    last_offset: int
    log_append_time: Millis
    """-1 where the topic keeps the producers' timestamps."""
    log_start_offset: int
    duplicate: bool
    """The batch was there already; the offsets are those it got then."""
    flush_due: bool
    """The topic wants a flush before the acknowledgement."""


class LogHost(Protocol):
    """What a log asks of its surroundings."""

    def rolled(self, log: Log) -> None:
        """A segment is complete: flush it some time soon."""

    def delete_later(self, paths: Sequence[str], *, at: Millis) -> None:
        """Remove these files, which have their `.deleted` names already, at the given time."""

    def start_moved(self, log: Log) -> None:
        """The log start offset has changed: write it down some time soon."""

    def recovery_point_lowered(self, log: Log) -> None:
        """Write the recovery points down before the log is appended to again."""


class FlushJob(NamedTuple):
    """What has to be forced to disk so that everything below `offset` is safe. `run` may be called in any thread."""

    files: list[OpenFile]
    paths: list[str]
    offset: int

    def run(self) -> None:
        try:
            for file in self.files:
                os.fdatasync(file.fd)
            for path in self.paths:
                sync_path(path)
        except OSError as error:
            raise KafkaStorageError(f"cannot force data to disk: {error.strerror}") from error
