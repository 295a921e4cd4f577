"""The contract between a state machine and the driver that runs it.

A machine takes values and ``now`` and returns an :class:`Outcome`. It holds no futures, sockets, clocks or threads. It
has two kinds of state:

- Logged state is what its records say. Only ``replay`` changes it, so a live request and a restart take the same path.
- Soft state is what a restart may lose: parked requests, deadlines, a rebalance in progress. Operations may change it,
  and nothing else. If the journal does not take the records of an outcome, ``append_failed`` puts it right.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from ottla.types import Millis

Record = TypeVar("Record")
Response = TypeVar("Response", covariant=True)
_NO_ANSWERS: Mapping[Hashable, object] = MappingProxyType({})


class Parked(NamedTuple):
    """The request waits. A later outcome names the token and brings the response."""

    token: Hashable


class Timer(NamedTuple):
    """Call ``fire(key)`` at a time. It replaces a timer with the same key; ``at=None`` cancels that one."""

    key: Hashable
    at: Millis | None


class Outcome(NamedTuple, Generic[Record, Response]):
    """What an operation decided: records to append, the response, timers, and responses to parked requests."""

    records: Sequence[Record]
    response: Response | Parked
    timers: tuple[Timer, ...] = ()
    answers: Mapping[Hashable, object] = _NO_ANSWERS


NOTHING: Outcome[Any, None] = Outcome((), None)


class Machine(Generic[Record]):
    """What the driver needs from a machine besides its operations."""

    def replay(self, record: Record, /) -> None:
        """Change the logged state by one record."""
        raise NotImplementedError

    def fire(self, key: Hashable, /, *, now: Millis) -> Outcome[Record, None]:
        """Return what follows from a timer that is due."""
        return NOTHING

    def replay_batch(self, records: Sequence[Record], /) -> None:
        """Replay the records of one outcome."""
        for record in records:
            self.replay(record)

    def join_batches(self, batches: Sequence[Sequence[Record]], /) -> Sequence[Record]:
        """Combine the records of several gathered outcomes into one batch."""
        return [record for batch in batches for record in batch]

    def append_failed(self, outcome: Outcome[Record, Any], /, *, now: Millis) -> Outcome[Record, None]:
        """Correct the soft state after the journal did not take an outcome. Return timers and answers, no records."""
        return NOTHING
