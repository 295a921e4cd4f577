"""The interface between the coordinator and the kinds of groups: the :class:`Group` protocol, and the shared `Shard`.

A kind of group is a class with the methods of `Group`, and a replayer for each type of record that it writes (see
``coordinator.Coordinator``). Operations add their records, timers and answers to the `Effects` that they get.

The state of a group has two parts:

- **Logged state** is what the records say. It changes in `replay` only, so a restart and a live request have the same
  effect.
- **Soft state** is everything else: parked requests, deadlines, and a rebalance that is under way, whose generation is
  ahead of the log as in Kafka. Operations may change it, and a restart loses it. `replay` brings it in line with the
  log. If the journal does not take the records of an operation, `append_failed` puts it right.
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
    """What groups need to know about a topic."""

    topic_id: UUID
    partitions: int


class Group(Protocol):
    """One group of any kind."""

    group_id: str

    @property
    def type(self) -> str:
        """`CLASSIC` or `CONSUMER`."""

    @property
    def is_empty(self) -> bool:
        """Whether it has no members and may be deleted, or become a group of the other kind."""

    def listed(self) -> m.ListedGroup: ...

    # ── members of the classic protocol. Errors are codes in the response, nothing is raised ──────────────────────

    def join(self, request: m.JoinRequest, fx: Effects) -> m.JoinResponse | Parked: ...

    def sync(self, request: m.SyncRequest, fx: Effects) -> m.SyncResponse | Parked: ...

    def heartbeat(self, request: m.HeartbeatRequest, fx: Effects) -> m.HeartbeatResponse: ...

    def leave(self, request: m.LeaveRequest, fx: Effects) -> m.LeaveResponse: ...

    # ── offsets. These raise the error that the client gets ───────────────────────────────────────────────────────

    def check_commit(self, request: m.CommitRequest | m.TransactionalCommitRequest, fx: Effects) -> None:
        """Raise if this commit is not allowed. A commit may count as a heartbeat."""

    def check_fetch(self, request: m.FetchRequest) -> None: ...

    def check_delete_offsets(self) -> None: ...

    def check_delete(self) -> None: ...

    def is_subscribed(self, topic: str) -> bool: ...

    def offset_expiry(self, fx: Effects) -> IsExpired | None:
        """Return a function that tells whether an offset has expired, or None if no offset can expire now."""

    # ── for tests ─────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def member_ids(self) -> tuple[str, ...]: ...

    def force_rebalance(self, trigger: r.Trigger, fx: Effects) -> None: ...

    def expire_session(self, member_id: str, fx: Effects) -> None: ...

    # ── the life of the group ─────────────────────────────────────────────────────────────────────────────────────

    def fire(self, key: tuple[Hashable, ...], fx: Effects) -> None:
        """A timer of the group has fired. Its key is ``(name, group_id, …)``."""

    def loaded(self, fx: Effects) -> None:
        """The partition has been replayed: set the timers."""

    def delete(self, fx: Effects) -> None:
        """Write the tombstones of the group, but not of its offsets and its history, and cancel its timers."""

    def append_failed(self, keys: Collection[r.Key], fx: Effects) -> None:
        """Records with these keys were not written: put soft state right, and set the timers again."""


class Shard:
    """State that the groups of one partition of the offsets topic share."""

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
        """Return the present times of a consumer group."""
        return self._own_times_of(group_id) or self._times

    def park(self) -> Parked:
        """Return a new token for a request that waits."""
        return Parked(next(self._tokens))


def retention_expiry(retention: Millis, *, since: Millis = -1, now: Millis) -> IsExpired:
    """Return a function that tells whether an offset is older than the retention, counted from a time or its commit.

    Old clients could give an offset its own expiry time, which has priority.
    """

    def is_expired(value: r.OffsetCommitValue) -> bool:
        if value.expire_timestamp != -1:
            return now >= value.expire_timestamp
        return now - (value.commit_timestamp if since == -1 else since) >= retention

    return is_expired
