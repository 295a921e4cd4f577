"""What an operation has decided so far: an :class:`~ottla.machine.Outcome` in the making.

The functions of a machine pass one `Effects` down instead of merging outcomes. It also carries ``now``.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, TypeVar

from ottla.coordinator.records import CoordinatorRecord, Key, Value
from ottla.machine import Outcome, Parked, Timer
from ottla.types import Millis

Response = TypeVar("Response")


class Effects:
    """Collects records, timers and answers."""

    __slots__ = ("answers", "now", "records", "timers")

    def __init__(self, *, now: Millis) -> None:
        self.now = now
        self.records: list[CoordinatorRecord] = []
        self.timers: dict[Hashable, Millis | None] = {}
        self.answers: dict[Hashable, Any] = {}

    def write(self, key: Key, value: Value | None) -> None:
        self.records.append(CoordinatorRecord(key, value))

    def set_timer(self, key: Hashable, at: Millis) -> None:
        self.timers[key] = at

    def cancel_timer(self, key: Hashable) -> None:
        self.timers[key] = None

    def answer(self, token: Hashable, response: object) -> None:
        self.answers[token] = response

    def outcome(
        self, response: Response | Parked, records: Sequence[CoordinatorRecord] | None = None
    ) -> Outcome[CoordinatorRecord, Response]:
        """Return the outcome, with the collected records or those of the caller.

        A request that was parked and answered in the same operation is not parked.
        """
        if isinstance(response, Parked) and response.token in self.answers:
            response = self.answers.pop(response.token)
        timers = tuple([Timer(key, at) for key, at in self.timers.items()]) if self.timers else ()
        return Outcome(tuple(self.records) if records is None else records, response, timers, self.answers)
