"""The values of replication: what a machine sees of a log, what a follower asks, and what is to be done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from ottla.types import BrokerId

UNKNOWN_OFFSET = -1
UNKNOWN_EPOCH = -1


class LogView(Protocol):
    """What the machines see of a log. `storage.Log` fits."""

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""

    @property
    def log_end_offset(self) -> int:
        """The offset after the last record."""

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch of the log, -1 if it has none."""

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch that is not newer than `epoch`, and its end offset; (-1, -1) if unknown."""


class EpochEnd(NamedTuple):
    """A leader epoch and the offset at which it ended."""

    epoch: int
    end_offset: int


# ── of the leader ───────────────────────────────────────────────────────────────────────────────────────────


class ReplicaFetch(NamedTuple):
    """A follower's fetch of one partition."""

    replica: BrokerId
    broker_epoch: int
    """Of the follower's broker."""
    leader_epoch: int
    """The epoch in which the follower believes to be."""
    fetch_offset: int
    """The end of the follower's log."""
    last_fetched_epoch: int
    """The newest epoch of the follower's log, -1 if it has none."""
    log_start_offset: int
    """The start of the follower's log."""


class Fetched(NamedTuple):
    """What a follower's fetch means for the leader."""

    diverging: EpochEnd | None
    """The logs differ: answer this instead of records."""
    has_raised_high_watermark: bool


class Member(NamedTuple):
    """A member of a proposed ISR."""

    broker_id: BrokerId
    broker_epoch: int
    """-1 if it was a member before and has not fetched since."""


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """An AlterPartition request of a leader."""

    isr: tuple[Member, ...]
    leader_epoch: int
    partition_epoch: int


# ── of a follower ───────────────────────────────────────────────────────────────────────────────────────────


class DivergingEpoch(Protocol):
    """The field `diverging_epoch` of a Fetch response; epoch -1 if there is none."""

    @property
    def epoch(self) -> int: ...

    @property
    def end_offset(self) -> int: ...


class FetchedPartition(Protocol):
    """A partition in a Fetch response, with the names of the protocol's schema."""

    @property
    def error_code(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def diverging_epoch(self) -> DivergingEpoch | None: ...

    @property
    def records(self) -> memoryview | None: ...


class Append(NamedTuple):
    """Append the records, which may be empty, and then call `Follower.appended`."""

    records: memoryview
    high_watermark: int
    """The leader's."""
    log_start_offset: int
    """The leader's."""


class Truncate(NamedTuple):
    """Cut the log to end at this offset (`Log.truncate_to`), also if it ends there already; then fetch at once."""

    offset: int


class Restart(NamedTuple):
    """Remove everything and start at this offset (`Log.truncate_fully_and_start_at`); then fetch at once."""

    offset: int


class Wait(NamedTuple):
    """The leader answered an error. Fetch again after `replica.fetch.backoff.ms`."""

    error_code: int


class Stop(NamedTuple):
    """The leader is in a newer epoch. Do not fetch until the image has it too."""


class Ignore(NamedTuple):
    """The log has changed since the fetch was sent. Fetch at once."""


Step: TypeAlias = Append | Truncate | Restart | Wait | Stop | Ignore
