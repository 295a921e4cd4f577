"""Which events to send: once when something begins, seldom while it lasts, once when it is over. No storm of repeats.

A *condition* is on or off, such as a lag above its limit. An *occurrence* happens at a moment, such as a rebalance.
Occurrences of one subject within the quiet time are told together afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ottla.types import Millis

QUIET: Millis = 60_000
REPEAT: Millis = 3_600_000
BEGAN, LASTS, OVER, HAPPENED = "began", "lasts", "over", "happened"


class Subject(NamedTuple):
    """What an event is about."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Event:
    """Something to tell people.

    >>> Event(Subject("lag", "billing"), BEGAN, 1_700_000_000_000, {"seconds": 99}).id
    'lag/billing/began/1700000000000'
    """

    subject: Subject
    status: str
    at: Millis
    details: Mapping[str, Any]
    count: int = 1
    """How many occurrences it stands for."""

    @property
    def id(self) -> str:
        """The same whenever the event is sent again, so that a receiver can leave out repeats."""
        return f"{self.subject.kind}/{self.subject.name}/{self.status}/{self.at}"


@dataclass(slots=True)
class _Merged:
    told_at: Millis
    count: int = 0
    details: dict[str, Any] = field(default_factory=dict)


class Alarms:
    """Remembers what has been told.

    >>> alarms, billing = Alarms(), Subject("lag", "billing")
    >>> [event.status for event in alarms.condition(billing, True, {}, now=0)]
    ['began']
    >>> alarms.condition(billing, True, {}, now=1_000)
    []
    """

    def __init__(self, *, quiet: Millis = QUIET, repeat: Millis = REPEAT) -> None:
        self._quiet = quiet
        self._repeat = repeat
        self._on: dict[Subject, Millis] = {}
        self._merged: dict[Subject, _Merged] = {}

    def is_on(self, subject: Subject) -> bool:
        return subject in self._on

    def condition(self, subject: Subject, is_on: bool, details: Mapping[str, Any], *, now: Millis) -> list[Event]:
        """Tell whether a condition holds now."""
        told_at = self._on.get(subject)
        if not is_on:
            if told_at is None:
                return []
            del self._on[subject]
            return [Event(subject, OVER, now, details)]
        if told_at is not None and now - told_at < self._repeat:
            return []
        self._on[subject] = now
        return [Event(subject, BEGAN if told_at is None else LASTS, now, details)]

    def forget(self, kind: str, names: set[str], *, now: Millis) -> list[Event]:
        """End the conditions of subjects that are not among these names any more."""
        gone = [one for one in self._on if one.kind == kind and one.name not in names]
        return [event for one in gone for event in self.condition(one, False, {"gone": True}, now=now)]

    def occurred(self, subject: Subject, details: Mapping[str, Any], *, count: int = 1, now: Millis) -> list[Event]:
        """Tell of an occurrence: now, or with others after the quiet time."""
        merged = self._merged.get(subject)
        if merged is None:
            self._merged[subject] = _Merged(now)
            return [Event(subject, HAPPENED, now, details, count)]
        merged.count += count
        merged.details = dict(details)
        return []

    def due(self, *, now: Millis) -> list[Event]:
        """The occurrences whose quiet time is over."""
        events = []
        for subject, merged in list(self._merged.items()):
            if now - merged.told_at < self._quiet:
                continue
            if merged.count:
                events.append(Event(subject, HAPPENED, now, merged.details, merged.count))
                self._merged[subject] = _Merged(now)
            else:
                del self._merged[subject]
        return events
