"""A follower of one partition in one leader epoch: what to fetch, and what a response means for its log.

A follower never truncates to its high watermark, which may be too low: records above it may be committed (KIP-101). It
tells the newest epoch of its log with each fetch. If the leader's log differs, the response says where, and the
follower truncates to there and fetches again, until its log is a prefix of the leader's (KIP-279). Only then does it
take the leader's high watermark.

The high watermark of a follower does not fall if a new leader does not know it yet: what is committed stays so. Only a
truncation lowers it, and that removes committed records only after an unclean election.
"""

from __future__ import annotations

from ottla import errors
from ottla.metadata.values import PartitionState
from ottla.replication.values import (
    Append,
    DivergingEpoch,
    FetchedPartition,
    Ignore,
    LogView,
    Restart,
    Step,
    Stop,
    Truncate,
    Wait,
)
from ottla.types import BrokerId

_NOTHING = memoryview(b"")


class Follower:
    """One leader epoch of a partition that this broker follows. A new leader epoch gets a new one."""

    __slots__ = ("_high_watermark", "_is_prefix", "_leader_start", "_log", "leader", "leader_epoch")

    def __init__(self, *, state: PartitionState, log: LogView, high_watermark: int) -> None:
        self.leader: BrokerId = state.leader
        self.leader_epoch = state.leader_epoch
        self._log = log
        self._high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        self._leader_start = log.log_start_offset
        self._is_prefix = False
        """The log is a prefix of the leader's, and stays one in this epoch: an answer that it diverges is outdated."""

    @property
    def fetch_offset(self) -> int:
        """The end of the log: where the next fetch starts."""
        return self._log.log_end_offset

    @property
    def last_fetched_epoch(self) -> int:
        """The newest epoch of the log, for the next fetch; -1 if it has none."""
        return self._log.latest_epoch

    @property
    def high_watermark(self) -> int:
        """The end of what is known to be committed and is in this log."""
        return min(self._high_watermark, self._log.log_end_offset)

    @property
    def start_offset(self) -> int:
        """Where this log should start: as the leader's, but never above what is committed here."""
        return min(self._leader_start, self.high_watermark)

    def response(self, fetch_offset: int, response: FetchedPartition) -> Step:
        """What to do about the response to a fetch from `fetch_offset`. The leader epoch of the fetch was this one."""
        code = response.error_code
        if code == errors.FencedLeaderEpoch.code:
            return Stop()
        if fetch_offset != self._log.log_end_offset:
            return Ignore()
        if code == errors.OffsetOutOfRange.code:
            return self._out_of_range(response)
        if code:
            return Wait(code)
        diverging = response.diverging_epoch
        if diverging is not None and diverging.epoch >= 0:
            return Wait(code) if self._is_prefix else self._diverging(diverging)
        records = response.records
        return Append(_NOTHING if records is None else records, response.high_watermark, response.log_start_offset)

    def appended(self, step: Append) -> bool:
        """The records of a step are in the log. True if the high watermark rose; see also `start_offset`."""
        before = self.high_watermark
        self._is_prefix = True
        self._leader_start = max(self._leader_start, step.log_start_offset)
        committed = min(step.high_watermark, self._log.log_end_offset)
        self._high_watermark = max(before, committed)
        return self._high_watermark > before

    def _diverging(self, diverging: DivergingEpoch) -> Step:
        """Cut what the leader does not have. If the leader's epoch is unknown here, that is not all: it will tell."""
        epoch, end_offset = self._log.end_offset_for_epoch(diverging.epoch)
        if epoch < 0:
            end_offset = self._log.log_end_offset
        if epoch < 0 or epoch == diverging.epoch:
            end_offset = min(end_offset, diverging.end_offset)
        if end_offset < self._log.log_start_offset:
            return self._restart(end_offset)
        self._high_watermark = min(self._high_watermark, end_offset)
        return Truncate(end_offset)

    def _out_of_range(self, response: FetchedPartition) -> Step:
        """The leader has deleted the records after the end of this log, or this log is empty and starts too late."""
        start = response.log_start_offset
        if start < 0 or (self._is_prefix and start < self._log.log_end_offset):
            return Wait(response.error_code)
        return self._restart(start)

    def _restart(self, offset: int) -> Step:
        self._high_watermark = self._leader_start = offset
        return Restart(offset)
