"""The leader epochs of a partition: at which offset each of them began to write.

A change is written to `leader-epoch-checkpoint` at once, but without fsync: recovery learns the epochs of
what it scans from the batches themselves, and the flush of a log forces the file to disk before it moves
the recovery point.
"""

from __future__ import annotations

from bisect import bisect_right

from ottla.storage import checkpoints

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class LeaderEpochCache:
    """(epoch, start offset) pairs, both growing."""

    __slots__ = ("_entries", "_written", "directory")

    def __init__(self, directory: str, entries: list[tuple[int, int]] | None = None) -> None:
        self.directory = directory
        self._entries = entries if entries is not None else []
        self._written = list(self._entries)

    @property
    def latest(self) -> int:
        """The newest epoch, -1 if there was none yet."""
        return self._entries[-1][0] if self._entries else UNDEFINED_EPOCH

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        return tuple(self._entries)

    def assign(self, epoch: int, start_offset: int) -> None:
        """`epoch` writes from `start_offset` on. Nothing happens if it is not newer than the newest."""
        if epoch > self.latest:
            self._entries = [entry for entry in self._entries if entry[1] < start_offset]
            self._entries.append((epoch, start_offset))
            self.write()

    def learn(self, epoch: int, start_offset: int) -> None:
        """Like `assign`, but nothing is written: for recovery, which writes once at its end."""
        if epoch > self.latest:
            self._entries.append((epoch, start_offset))

    def forget_from(self, offset: int) -> None:
        """Forget the epochs that began at `offset` or later, to learn them anew; nothing is written."""
        self._entries = [entry for entry in self._entries if entry[1] < offset]

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch that is not newer than `epoch`, and where it ended; (-1, -1) if nobody can know."""
        if epoch == UNDEFINED_EPOCH or not self._entries or epoch > self.latest:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        following = bisect_right(self._entries, epoch, key=lambda entry: entry[0])
        found = self._entries[following - 1][0] if following else epoch
        return found, self._entries[following][1]

    def epoch_of(self, offset: int) -> int:
        """The epoch in which `offset` was written, -1 if it is older than all that are known."""
        following = bisect_right(self._entries, offset, key=lambda entry: entry[1])
        return self._entries[following - 1][0] if following else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """The log now ends at `end_offset`: forget the epochs that began there or later."""
        self._replace([entry for entry in self._entries if entry[1] < end_offset])

    def truncate_from_start(self, start_offset: int) -> None:
        """The log now starts at `start_offset`: forget the epochs that ended before it."""
        following = bisect_right(self._entries, start_offset, key=lambda entry: entry[1])
        kept = self._entries[following:]
        if following:
            kept.insert(0, (self._entries[following - 1][0], start_offset))
        self._replace(kept)

    def _replace(self, entries: list[tuple[int, int]]) -> None:
        self._entries = entries
        self.write()

    def write(self) -> None:
        """Write the file, if it does not say the same already."""
        if self._entries != self._written:
            checkpoints.write_epochs(self.directory, self._entries)
            self._written = list(self._entries)
