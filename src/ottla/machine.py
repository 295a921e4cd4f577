"""The contract of a state machine, shared by the machines and by the runner that drives them.

A machine takes values and ``now`` and returns an :class:`Outcome`. Its operations change nothing: only ``replay`` of a
record does, so that a live request and a restart take the same way. It holds no futures, sockets, clocks or threads.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Generic, NamedTuple, Protocol, TypeVar

from ottla.types import Millis

Record = TypeVar("Record")
Response = TypeVar("Response", covariant=True)
_NO_ANSWERS: Mapping[Hashable, object] = MappingProxyType({})


class Parked(NamedTuple):
    """The request waits; a later outcome names the token and brings the answer."""

    token: Hashable


class Timer(NamedTuple):
    """Call the machine's ``fire(key)`` at a time. A timer of the same key is replaced; ``at=None`` cancels it."""

    key: Hashable
    at: Millis | None


class Outcome(NamedTuple, Generic[Record, Response]):
    """What an operation decided: records to append, the answer, timers to set, answers of parked requests."""

    records: Sequence[Record]
    response: Response | Parked
    timers: tuple[Timer, ...] = ()
    answers: Mapping[Hashable, object] = _NO_ANSWERS


class Machine(Protocol[Record]):
    """What the runner needs of a machine besides its operations."""

    def replay(self, record: Record, /) -> None:
        """Change the state by one record; the only thing that does."""

    def fire(self, key: Hashable, /, *, now: Millis) -> Outcome[Record, None]:
        """Return what is due now that the timer of this key has run out."""
