"""The deadlines of a group's members: the session, giving up partitions, and joining and syncing again.

Soft state: a restart gives every member its whole time again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.coordinator.consumer.member import Member, MemberState
from ottla.coordinator.effects import Effects
from ottla.coordinator.sessions import Sessions
from ottla.types import Millis

if TYPE_CHECKING:
    from ottla.coordinator.group import Shard

SESSION = "consumer-session"
REBALANCE = "consumer-rebalance"
JOIN = "consumer-join"
SYNC = "consumer-sync"


class MemberTimers:
    """The timers of the members of one group. The key of a timer is ``(name, group_id, member_id)``."""

    def __init__(self, shard: Shard, group_id: str) -> None:
        self._shard = shard
        self._group_id = group_id
        self.sessions = Sessions(SESSION, group_id)
        self._told_to_join: set[str] = set()
        """Members of the classic protocol that were told to join again and have not done so."""

    def session_timeout_of(self, member: Member) -> Millis:
        if member.classic is not None:
            return member.classic.session_timeout
        return self._shard.times_of(self._group_id).session_timeout

    def touch(self, member: Member, fx: Effects) -> None:
        """Start the session of a member again."""
        self.sessions.touch(member.member_id, self.session_timeout_of(member), fx)

    def replaced(self, member_id: str) -> None:
        """Forget the session of a static member that was replaced. Its timer finds no member."""
        self.sessions.by_member.pop(member_id, None)

    def forget(self, member_id: str, fx: Effects) -> None:
        """Cancel all timers of a member."""
        self.sessions.forget(member_id, fx)
        self._told_to_join.discard(member_id)
        for name in (REBALANCE, JOIN, SYNC):
            fx.cancel_timer((name, self._group_id, member_id))

    def moved(self, before: Member, after: Member, fx: Effects) -> None:
        """Limit the time to give up partitions. Members of the classic protocol must join and sync in time instead."""
        if after.classic is not None:
            return
        if after.state is MemberState.UNREVOKED_PARTITIONS:
            fx.set_timer((REBALANCE, self._group_id, after.member_id), fx.now + after.rebalance_timeout)
        elif before.state is MemberState.UNREVOKED_PARTITIONS:
            fx.cancel_timer((REBALANCE, self._group_id, after.member_id))

    # ── members of the classic protocol ───────────────────────────────────────────────────────────────────────────

    def told_to_join(self, member: Member, fx: Effects) -> None:
        """Give a member its rebalance timeout to join again, from the first time that it is told."""
        if member.member_id not in self._told_to_join:
            self._told_to_join.add(member.member_id)
            fx.set_timer((JOIN, self._group_id, member.member_id), fx.now + member.rebalance_timeout)

    def joined(self, member: Member, fx: Effects) -> None:
        """Give a member its rebalance timeout to sync."""
        self.touch(member, fx)
        self._told_to_join.discard(member.member_id)
        fx.set_timer((SYNC, self._group_id, member.member_id), fx.now + member.rebalance_timeout)
        fx.cancel_timer((JOIN, self._group_id, member.member_id))

    def synced(self, member: Member, fx: Effects) -> None:
        fx.cancel_timer((SYNC, self._group_id, member.member_id))
        self.touch(member, fx)

    # ── all members ───────────────────────────────────────────────────────────────────────────────────────────────

    def start(self, members: Iterable[Member], fx: Effects) -> None:
        """Give every member its whole time, after a restart or when the log did not take records."""
        self.sessions.by_member.clear()
        for member in members:
            self.touch(member, fx)
            self.moved(member, member, fx)
