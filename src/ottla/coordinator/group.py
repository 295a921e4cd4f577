"""What the coordinator and the kinds of groups agree on: the :class:`Group` protocol and the :class:`Shard` they share.

A kind of group is a class that has what `Group` lists, plus a replayer for each type of record that it writes (see
``coordinator.Coordinator``). Operations add what they decide to the :class:`Effects` that they are given; they
may change soft state (who waits, deadlines), while durable state changes in replay only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Protocol
from uuid import UUID

from ottla.coordinator import messages as m
from ottla.coordinator import records as r
from ottla.coordinator.config import GroupConfig, Times, TimesOf
from ottla.coordinator.effects import Effects
from ottla.coordinator.history import Histories
from ottla.coordinator.offsets import IsExpired, Offsets
from ottla.machine import Parked
from ottla.types import Millis

CLASSIC = "Classic"
CONSUMER = "Consumer"


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """What groups need to know of a topic."""

    topic_id: UUID
    partitions: int


class Group(Protocol):
    """One group, of whatever kind."""

    group_id: str

    @property
    def type(self) -> str:
        """`CLASSIC` or `CONSUMER`."""

    @property
    def is_empty(self) -> bool:
        """Whether it has no members, so that it may be deleted or become another kind."""

    def listed(self) -> m.ListedGroup: ...

    # ── members of the classic protocol; the answer has an error code, nothing is raised ──────────────────────────

    def join(self, request: m.JoinRequest, fx: Effects) -> m.JoinResponse | Parked: ...

    def sync(self, request: m.SyncRequest, fx: Effects) -> m.SyncResponse | Parked: ...

    def heartbeat(self, request: m.HeartbeatRequest, fx: Effects) -> m.HeartbeatResponse: ...

    def leave(self, request: m.LeaveRequest, fx: Effects) -> m.LeaveResponse: ...

    # ── offsets: what a member may do; these raise the error that the client is told ──────────────────────────────

    def check_commit(self, request: m.CommitRequest | m.TransactionalCommitRequest, fx: Effects) -> None:
        """Raise if this commit is not allowed. It may keep a session."""

    def check_fetch(self, request: m.FetchRequest) -> None: ...

    def check_delete_offsets(self) -> None: ...

    def check_delete(self) -> None: ...

    def is_subscribed(self, topic: str) -> bool: ...

    def offset_expiry(self, fx: Effects) -> IsExpired | None:
        """Return what tells whether an offset has expired, or None if none can expire now."""

    # ── the life of the group ─────────────────────────────────────────────────────────────────────────────────────

    def fire(self, key: tuple[Hashable, ...], fx: Effects) -> None:
        """A timer of the group has run out. Its key is (name, group id, …)."""

    def loaded(self, fx: Effects) -> None:
        """The partition has been replayed: set the timers."""

    def delete(self, fx: Effects) -> None:
        """Write the tombstones of the group (not of its offsets, nor of its history) and cancel its timers."""

    def append_failed(self, keys: Collection[r.Key], fx: Effects) -> None:
        """Records with these keys were not written: put soft state right, and set the timers again."""


class Shard:
    """What the groups of one partition of the offsets topic share."""

    def __init__(
        self,
        config: GroupConfig,
        new_id: Callable[[], str],
        topics: Callable[[], Mapping[str, TopicInfo]],
        times_of: TimesOf,
    ) -> None:
        self.config = config
        self.new_id = new_id
        self.topics = topics
        self._times = config.times
        self._own_times_of = times_of
        self.groups: dict[str, Group] = {}
        """The groups that the log knows."""
        self.forming: dict[str, Group] = {}
        """Soft state: groups whose first records are being written. `replay` moves them to `groups`."""
        self.offsets = Offsets(config.offset_metadata_max_bytes)
        self.histories = Histories()
        self._tokens = count()

    def times_of(self, group_id: str) -> Times:
        """Return the times of a consumer group, as they are now."""
        return self._own_times_of(group_id) or self._times

    def park(self) -> Parked:
        """Return a new token for a request that waits."""
        return Parked(next(self._tokens))


def retention_expiry(retention: Millis, *, since: Millis = -1, now: Millis) -> IsExpired:
    """Return what tells whether an offset has been kept for long enough, since a time or since its commit.

    A client of long ago could give an offset an end of its own; then that one counts.
    """

    def is_expired(value: r.OffsetCommitValue) -> bool:
        if value.expire_timestamp != -1:
            return now >= value.expire_timestamp
        return now - (value.commit_timestamp if since == -1 else since) >= retention

    return is_expired
