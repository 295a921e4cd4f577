"""When the sessions of a group's members end. Soft state: after a restart every member gets a whole session again.

A heartbeat only moves the deadline. The timer fires at the old deadline, finds the new one and is set again. So a
heartbeat costs no timer, and a session has at most one.
"""

from __future__ import annotations

from collections.abc import Container, Hashable

from ottla.coordinator.effects import Effects
from ottla.types import Millis


class Session:
    """One member's session. The timer is set for the deadline or an earlier time."""

    __slots__ = ("deadline", "timer_at")

    def __init__(self, deadline: Millis) -> None:
        self.deadline = deadline
        self.timer_at = deadline


class Sessions:
    """The sessions of one group. The timer of a session has the key ``(timer, group_id, member_id)``.

    >>> sessions, fx = Sessions("heartbeat", "billing"), Effects(now=0)
    >>> sessions.touch("a", 10_000, fx)
    >>> fx.timers
    {('heartbeat', 'billing', 'a'): 10000}
    >>> sessions.touch("a", 10_000, Effects(now=3_000))
    >>> sessions.is_over("a", fx := Effects(now=10_000)), fx.timers
    (False, {('heartbeat', 'billing', 'a'): 13000})
    """

    __slots__ = ("_group_id", "_timer", "by_member")

    def __init__(self, timer: str, group_id: str) -> None:
        self._timer = timer
        self._group_id = group_id
        self.by_member: dict[str, Session] = {}

    def touch(self, member_id: str, timeout: Millis, fx: Effects) -> None:
        """Start the session again: the coordinator has heard of the member."""
        deadline = fx.now + timeout
        session = self.by_member.get(member_id)
        if session is not None and session.timer_at <= deadline:
            session.deadline = deadline
            return
        self.by_member[member_id] = Session(deadline)
        fx.set_timer(self._key(member_id), deadline)

    def is_over(self, member_id: str, fx: Effects) -> bool:
        """The timer has fired: return whether the session is over, or set the timer again."""
        session = self.by_member.get(member_id)
        if session is not None and session.deadline > fx.now:
            session.timer_at = session.deadline
            fx.set_timer(self._key(member_id), session.deadline)
            return False
        self.by_member.pop(member_id, None)
        return True

    def forget(self, member_id: str, fx: Effects) -> None:
        """End the session of a member that is gone."""
        self.by_member.pop(member_id, None)
        fx.cancel_timer(self._key(member_id))

    def retain(self, members: Container[str]) -> None:
        """Forget everybody else. Their timers fire and find no session."""
        self.by_member = {each: session for each, session in self.by_member.items() if each in members}

    def set_timers(self, fx: Effects) -> None:
        """Set every timer again, because the last ones may have been lost with records that were not written."""
        for member_id, session in self.by_member.items():
            session.timer_at = session.deadline
            fx.set_timer(self._key(member_id), session.deadline)

    def cancel_timers(self, fx: Effects) -> None:
        """Cancel every timer, and keep the deadlines in case the records are not written."""
        for member_id in self.by_member:
            fx.cancel_timer(self._key(member_id))

    def _key(self, member_id: str) -> Hashable:
        return self._timer, self._group_id, member_id
