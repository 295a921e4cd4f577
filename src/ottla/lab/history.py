"""The recorded rebalances of a real group as a scenario, so that they can be replayed under other settings.

| recorded | replayed |
| --- | --- |
| a member joined | it starts |
| a member left | it is closed |
| a member left because its application did not poll | it does not poll until it joins again |
| a session expired, and the same client joined later | its process stops, from one session timeout before until then |
| a session expired | it crashes one session timeout before |
| the others waited for a member | it does not poll for this long |
| a static member was replaced | it crashes, and starts at once |
| partitions or topics changed | the topic gets one partition more |

Quiet times are shortened. How many records there were, and how far members had read, is not recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ottla.coordinator import history as h
from ottla.coordinator.records import HistoryValue, Trigger, Who
from ottla.groups.diagnosis import SAME_PROCESS, is_slow, poll_interval, process
from ottla.lab.scenarios import Event, Scenario
from ottla.types import Millis

QUIET: Millis = 120_000
"""Longer times without an event are cut to this length."""
BEFORE: Millis = 5_000
DEFAULT_POLL_INTERVAL: Millis = 300_000
UNTIL_BACK: Millis = 60_000
"""For so long a member that left because it did not poll, and was not seen again, did not poll either."""
_LEFT = (h.MEMBER_LEFT, h.GROUP_TOO_LARGE)
_GREW = (h.PARTITIONS_ADDED, h.TOPIC_METADATA_CHANGED)


@dataclass(frozen=True, slots=True)
class Replay:
    """What happened to a group."""

    scenario: Scenario
    members: int
    partitions: int
    design: str
    """The design that the group has."""
    session_timeout: Millis
    max_poll_interval: Millis
    """What members said when they left because of it, or the clients' default."""
    longest_poll: Millis = 0
    """The longest time that a member which left because of it did not poll; 0 if none did."""


def replay(group: str, values: Sequence[HistoryValue], *, is_consumer: bool, session_timeout: Millis) -> Replay:
    """Turn recorded rebalances, the oldest first, into events. There must be one."""
    numbers = _Numbers()
    triggers = sorted((one for value in values for one in value.triggers), key=lambda one: one.at)
    events: list[Event] = []
    for place, trigger in enumerate(triggers):
        events += _events(trigger, triggers[place + 1 :], numbers, session_timeout)
    for value in values:
        for late in value.late:
            events.append(Event(value.started_at - 1, "slow", numbers.of(late.who), late.waited))
    at_start = max(_at_start(values[0]), len(numbers.at_start), 1)
    # Members that came later have numbers after those that were there from the start.
    order = [*numbers.at_start, *(one for one in numbers.known.values() if one not in numbers.at_start)]
    here = len(numbers.at_start)
    renamed = {old: new if new < here else new - here + at_start for new, old in enumerate(order)}
    events = [replace(one, member=renamed.get(one.member, one.member)) for one in events]
    partitions = max(value.partitions_kept + value.partitions_moved for value in values)
    scenario = Scenario(group, tuple(_shortened(sorted(events, key=lambda one: one.at))))
    is_static = any(one.who is not None and one.who.group_instance_id for one in triggers)
    slow = [one for one in triggers if is_slow(one)]
    return Replay(
        scenario,
        at_start,
        max(partitions, 1),
        _design(values[-1].protocol, is_consumer, is_static),
        session_timeout,
        next((found for one in reversed(slow) if (found := poll_interval(one.reason))), DEFAULT_POLL_INTERVAL),
        max((_slow_from_to(one, triggers)[1] for one in slow), default=0),
    )


class _Numbers:
    """Numbers of processes. A process is known by its instance id, or by its client and host."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}
        self.at_start: list[int] = []

    def of(self, who: Who, *, starts: bool = False) -> int:
        name = process(who)
        if name not in self.known:
            self.known[name] = len(self.known)
            if not starts:
                self.at_start.append(self.known[name])
        return self.known[name]


def _events(trigger: Trigger, later: Sequence[Trigger], numbers: _Numbers, session_timeout: Millis) -> list[Event]:
    if trigger.kind in _GREW:
        return [Event(trigger.at, "partitions", count=1)]
    if trigger.who is None:
        return []
    number = numbers.of(trigger.who, starts=trigger.kind == h.MEMBER_JOINED)
    if trigger.kind == h.MEMBER_JOINED:
        return [Event(trigger.at, "start", number)]
    if is_slow(trigger):
        began, length = _slow_from_to(trigger, later)
        return [Event(began, "slow", number, length)]
    if trigger.kind in _LEFT:
        return [Event(trigger.at, "leave", number)]
    if trigger.kind == h.STATIC_MEMBER_REPLACED:
        return [Event(trigger.at - 1, "crash", number), Event(trigger.at, "start", number)]
    if trigger.kind == h.SESSION_EXPIRED:
        began = trigger.at - session_timeout
        back = _return(trigger, later)
        if back is not None:
            return [Event(began, "pause", number, back.at - began)]
        return [Event(began, "crash", number)]
    return []


def _return(trigger: Trigger, later: Sequence[Trigger]) -> Trigger | None:
    """When the process of a member that went joined again, if it did so soon."""
    assert trigger.who is not None
    name = process(trigger.who)
    for one in later:
        is_back = one.kind == h.MEMBER_JOINED and one.who is not None and process(one.who) == name
        if is_back and 0 <= one.at - trigger.at <= SAME_PROCESS:
            return one
    return None


def _slow_from_to(trigger: Trigger, later: Sequence[Trigger]) -> tuple[Millis, Millis]:
    """When a member that left because it did not poll began not to, and for how long."""
    interval = poll_interval(trigger.reason) or DEFAULT_POLL_INTERVAL
    back = _return(trigger, later)
    return trigger.at - interval, interval + (back.at - trigger.at if back is not None else UNTIL_BACK)


def _at_start(first: HistoryValue) -> int:
    joined = sum(one.kind == h.MEMBER_JOINED for one in first.triggers)
    gone = sum(one.kind in (*_LEFT, h.SESSION_EXPIRED) for one in first.triggers)
    return first.members - joined + gone


def _shortened(events: Sequence[Event]) -> list[Event]:
    """The events from zero on, without long quiet times."""
    if not events:
        return []
    result: list[Event] = []
    at, end, busy = BEFORE, events[0].at, 0
    for event in events:
        at += min(max(event.at - end, 0), max(QUIET, busy - end))
        end, busy = max(end, event.at), max(busy, event.at + event.length)
        result.append(replace(event, at=at))
    return result


def _design(assignor: str, is_consumer: bool, is_static: bool) -> str:
    if is_consumer:
        return "consumer"
    if assignor == "cooperative-sticky":
        return "classic-cooperative"
    return "classic-static" if is_static else "classic-eager"
