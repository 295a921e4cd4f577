"""Requests that wait for other members. Soft state: a restart closes the connections that they came on."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from ottla.coordinator.effects import Effects
from ottla.machine import Parked


class Waiting:
    """The parked requests of one kind (joins or syncs), at most one per member.

    >>> joins, fx = Waiting(), Effects(now=0)
    >>> joins.park("a", Parked(7))
    Parked(token=7)
    >>> "a" in joins, joins.answer("a", "welcome", fx), "a" in joins
    (True, True, False)
    >>> fx.answers
    {7: 'welcome'}
    """

    __slots__ = ("_tokens",)

    def __init__(self) -> None:
        self._tokens: dict[str, Hashable] = {}

    def __contains__(self, member_id: object) -> bool:
        return member_id in self._tokens

    def __iter__(self) -> Iterator[str]:
        return iter(self._tokens)

    def __len__(self) -> int:
        return len(self._tokens)

    def park(self, member_id: str, parked: Parked) -> Parked:
        """Let a request wait. An earlier one of the same member must have been answered."""
        self._tokens[member_id] = parked.token
        return parked

    def answer(self, member_id: str, response: object, fx: Effects) -> bool:
        """Answer the request of a member; return whether there was one."""
        token = self._tokens.pop(member_id, None)
        if token is None:
            return False
        fx.answer(token, response)
        return True
