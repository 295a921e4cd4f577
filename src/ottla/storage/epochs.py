"""The leader epochs of a partition: the offset at which each of them started to write.

A replica that follows a leader must remove what the leader does not have. It tells its latest epoch with each fetch. If
the leader's log differs, the answer is `Log.end_offset_for_epoch` of the leader for that epoch. The follower calls
`Log.truncate_to` with the smaller of that offset and its own for the same epoch, and fetches again until the logs agree
(`ottla.replication`). `truncate_to` also removes the epochs, producer state and index entries of what was cut.

A change is written to `leader-epoch-checkpoint` at once, but without fsync. Recovery learns the epochs of what it scans
from the batches, and a flush of the log forces the file to disk before it moves the recovery point.
"""

from __future__ import annotations

from bisect import bisect_right

from ottla.storage import checkpoints

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class LeaderEpochCache:
    """(epoch, start offset) pairs in ascending order of both."""

    __slots__ = ("_entries", "_written", "directory")

    def __init__(self, directory: str, entries: list[tuple[int, int]] | None = None) -> None:
        self.directory = directory
        self._entries = entries if entries is not None else []
        self._written = list(self._entries)

    @property
    def latest(self) -> int:
        """The latest epoch, -1 if there is none yet."""
        return self._entries[-1][0] if self._entries else UNDEFINED_EPOCH

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        return tuple(self._entries)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that `epoch` writes from `start_offset` on. An epoch that is not newer than the latest is ignored."""
        if epoch > self.latest:
            self._entries = [entry for entry in self._entries if entry[1] < start_offset]
            self._entries.append((epoch, start_offset))
            self.write()

    def learn(self, epoch: int, start_offset: int) -> None:
        """Like `assign`, but without writing the file: recovery writes it once at its end."""
        if epoch > self.latest:
            self._entries.append((epoch, start_offset))

    def forget_from(self, offset: int) -> None:
        """Remove the epochs that start at `offset` or later, without writing the file."""
        self._entries = [entry for entry in self._entries if entry[1] < offset]

    def end_offset_for_epoch(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch that is not newer than `epoch`, and its end offset; (-1, -1) if it is unknown."""
        if epoch == UNDEFINED_EPOCH or not self._entries or epoch > self.latest:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        following = bisect_right(self._entries, epoch, key=lambda entry: entry[0])
        found = self._entries[following - 1][0] if following else epoch
        return found, self._entries[following][1]

    def epoch_of(self, offset: int) -> int:
        """The epoch in which `offset` was written, -1 if it is older than all known epochs."""
        following = bisect_right(self._entries, offset, key=lambda entry: entry[1])
        return self._entries[following - 1][0] if following else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """The log now ends at `end_offset`: remove the epochs that start there or later."""
        self.forget_from(end_offset)
        self.write()

    def truncate_from_start(self, start_offset: int) -> None:
        """The log now starts at `start_offset`: remove the epochs that ended before it."""
        following = bisect_right(self._entries, start_offset, key=lambda entry: entry[1])
        kept = self._entries[following:]
        if following:
            kept.insert(0, (self._entries[following - 1][0], start_offset))
        self._entries = kept
        self.write()

    def write(self) -> None:
        """Write the file if the entries have changed."""
        if self._entries != self._written:
            checkpoints.write_epochs(self.directory, self._entries)
            self._written = list(self._entries)
