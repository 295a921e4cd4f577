"""Why a group rebalances so often, in one sentence, and which setting to change. No I/O.

A rebalance has one cause here: its first trigger. A member that comes back soon after it went has not caused anything
new, so its return counts for the reason that it went.

    found = diagnose(happenings(history.rebalances), now=now)
    found.sentence    # Rebalanced 20 times in the last hour: 20 because billing-3 on 10.0.0.7 did not poll within …
    found.advice      # Raise max.poll.interval.ms of billing-3 …
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ottla.coordinator import history as h
from ottla.coordinator.consumer.history import NEVER_REJOINED, REVOCATION_TIMED_OUT
from ottla.coordinator.records import HistoryValue, Latecomer, Trigger, Who
from ottla.monitoring.derived import MEMBER_GONE, UNKNOWN_CAUSE, Derived
from ottla.times import duration
from ottla.types import Millis
from ottla.wording import plural

HOUR: Millis = 3_600_000
SAME_PROCESS: Millis = 600_000
"""A client that joins within this time after it went was the same process."""
FOLLOWS: Millis = 15_000
"""A member that joins again within this time follows from the rebalance before: cooperative rebalancing takes two."""
NAMED = 3
WORTH_TELLING: Millis = 5_000

# ── the kinds of causes ───────────────────────────────────────────────────────────────────────────────────────────
SLOW = "slow"
"""It did not poll in time: it left, or was removed while the others waited for it."""
SILENT = "silent"
LEFT = "left"
GONE = "gone"
JOINED = "joined"
_KINDS = {
    h.SESSION_EXPIRED: SILENT,
    h.MEMBER_LEFT: LEFT,
    MEMBER_GONE: GONE,
    h.MEMBER_JOINED: JOINED,
    h.NEVER_SYNCED: SLOW,
    NEVER_REJOINED: SLOW,
    REVOCATION_TIMED_OUT: SLOW,
}
_FOLLOWING = (h.LEADER_REJOINED, h.MEMBER_REJOINED)
#: What ottla's, Kafka's Java and other clients say when they leave because the application did not poll.
_POLL_REASON = re.compile(r"max\.poll\.interval|poll timeout|poll interval", re.IGNORECASE)
_INTERVAL = re.compile(r"max\.poll\.interval\.ms \((\d+)\)")


class Happening(NamedTuple):
    """A rebalance, as far as its causes are known."""

    number: int
    at: Millis
    triggers: tuple[Trigger, ...]
    late: tuple[Latecomer, ...] = ()


class Cause(NamedTuple):
    """Why the group rebalanced. `process` is empty if no member was the cause."""

    kind: str
    process: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Share:
    """A cause, and the rebalances that it had."""

    cause: Cause
    numbers: tuple[int, ...]
    told: str
    """What happened, such as: billing-3 did not poll within max.poll.interval.ms, left, and came back."""
    advice: str
    """Which setting to change; empty if there is none."""

    @property
    def count(self) -> int:
        return len(self.numbers)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a group's recent rebalances have in common."""

    period: Millis
    count: int
    shares: tuple[Share, ...] = ()
    """The most frequent cause first."""
    waits: str = ""
    """For whom the group waited, in words; empty if it did not wait for long."""

    @property
    def sentence(self) -> str:
        within = f"in the last {_period(self.period)}"
        if not self.count:
            return f"No rebalance {within}."
        told = [
            f"{share.count if self.count > 1 else ''} because {share.told}".strip() for share in self.shares[:NAMED]
        ]
        other = self.count - sum(share.count for share in self.shares[:NAMED])
        told += [f"{other} for other reasons"] if other else []
        times = "once" if self.count == 1 else plural(self.count, "time")
        reasons = "; ".join(told)
        return f"Rebalanced {times} {within}{': ' if self.count > 1 else ' '}{reasons}."

    @property
    def advice(self) -> str:
        """What to do about the most frequent cause, if something can be done."""
        return self.shares[0].advice if self.shares else ""

    @property
    def is_troubled(self) -> bool:
        """Whether there is something to change."""
        return bool(self.advice and self.shares[0].count > 1)


def happenings(values: Iterable[HistoryValue]) -> list[Happening]:
    """The recorded rebalances of a group."""
    return [
        Happening(one.number, one.started_at, one.triggers, one.late) for one in values if one.outcome != h.UNCHANGED
    ]


def derived_happenings(values: Iterable[Derived]) -> list[Happening]:
    """What Kafka's own records show."""
    found = []
    for one in values:
        members = [(MEMBER_GONE, one.gone), (h.MEMBER_JOINED, one.joined), (h.STATIC_MEMBER_REPLACED, one.replaced)]
        triggers = tuple(Trigger(kind, one.at, who) for kind, some in members for who in some)
        found.append(Happening(one.generation, one.at, triggers or (Trigger(UNKNOWN_CAUSE, one.at),)))
    return found


def diagnose(rebalances: Sequence[Happening], *, now: Millis, period: Millis = HOUR) -> Diagnosis:
    """Find what the rebalances of a period have in common."""
    causes = _causes(rebalances)
    recent = [one for one in rebalances if one.at > now - period]
    numbers: dict[Cause, list[int]] = {}
    for one in recent:
        numbers.setdefault(causes[one.number], []).append(one.number)
    order = sorted(numbers.items(), key=lambda item: -len(item[1]))
    shares = tuple(_share(cause, some, recent) for cause, some in order)
    return Diagnosis(period, len(recent), shares, _waits(recent))


def process(who: Who) -> str:
    """What stays the same when a process joins again."""
    return who.group_instance_id or f"{who.client_id}@{who.client_host}"


def is_slow(trigger: Trigger) -> bool:
    """Whether a member left because its application did not poll in time."""
    return trigger.kind == h.MEMBER_LEFT and _POLL_REASON.search(trigger.reason) is not None


def poll_interval(reason: str) -> Millis | None:
    """
    >>> poll_interval("no poll for longer than max.poll.interval.ms (300000)"), poll_interval("closed")
    (300000, None)
    """
    match = _INTERVAL.search(reason)
    return int(match[1]) if match else None


def _causes(rebalances: Sequence[Happening]) -> dict[int, Cause]:
    """The cause of each rebalance, by its number."""
    found: dict[int, Cause] = {}
    gone: dict[str, tuple[Millis, Cause]] = {}
    before: tuple[Millis, Cause] | None = None
    for one in rebalances:
        cause = _cause(one, gone, before)
        for trigger in one.triggers:
            if trigger.who is not None and _kind(trigger) in (SLOW, SILENT, LEFT, GONE):
                gone[process(trigger.who)] = one.at, _own_cause(trigger)
        for late in one.late:
            if late.removed:
                gone[process(late.who)] = one.at, Cause(SLOW, process(late.who), _name(late.who))
        found[one.number] = cause
        before = one.at, cause
    return found


def _cause(one: Happening, gone: dict[str, tuple[Millis, Cause]], before: tuple[Millis, Cause] | None) -> Cause:
    if not one.triggers:
        return Cause(UNKNOWN_CAUSE)
    first = one.triggers[0]
    if first.kind in _FOLLOWING and before is not None and one.at - before[0] <= FOLLOWS:
        return before[1]
    if first.kind == h.MEMBER_JOINED and first.who is not None:
        at, cause = gone.get(process(first.who), (-SAME_PROCESS - 1, Cause("")))
        if one.at - at <= SAME_PROCESS:
            return cause
    return _own_cause(first)


def _kind(trigger: Trigger) -> str:
    return SLOW if is_slow(trigger) else _KINDS.get(trigger.kind, trigger.kind)


def _own_cause(trigger: Trigger) -> Cause:
    if trigger.who is None:
        return Cause(_kind(trigger))
    return Cause(_kind(trigger), process(trigger.who), _name(trigger.who))


def _name(who: Who) -> str:
    host = who.client_host.lstrip("/")
    return (who.group_instance_id or who.client_id or who.member_id) + (f" on {host}" if host else "")


# ── words ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _share(cause: Cause, numbers: Sequence[int], recent: Sequence[Happening]) -> Share:
    some = [one for one in recent if one.number in set(numbers)]
    triggers = [trigger for one in some for trigger in one.triggers]
    about = [one for one in triggers if one.who is not None and process(one.who) == cause.process]
    returned = any(one.kind == h.MEMBER_JOINED for one in about) and cause.kind != JOINED
    back = ", and came back" if returned else ""
    name, client = cause.name, cause.name.partition(" on ")[0]
    if cause.kind == SLOW:
        intervals = [found for one in about if (found := poll_interval(one.reason)) is not None]
        limit = f" ({duration(intervals[-1])})" if intervals else ""
        told = f"{name} did not poll within max.poll.interval.ms{limit}{', left' if about else ''}{back}"
        advice = (
            f"Raise max.poll.interval.ms of {client} above the time that it needs for the records of one poll, "
            "or lower its max.poll.records."
        )
    elif cause.kind == SILENT:
        told = f"{name} sent no heartbeat within its session timeout{back}"
        advice = (
            f"{client} paused, or crashed and was started again: look at its log. If it pauses, raise its "
            "session.timeout.ms; if it is restarted, give it a group.instance.id."
            if returned
            else f"{client} crashed or was cut off: look at its log."
        )
    elif cause.kind == LEFT:
        told = f"{name} left{back}"
        advice = f"Give {client} a group.instance.id: then a short restart moves nothing." if returned else ""
    elif cause.kind == GONE:
        told = f"{name} left or its session expired{back} (Apache Kafka does not record which)"
        advice = (
            f"Look at the log of {client}: it left (compare max.poll.interval.ms with the time that it needs for the "
            "records of one poll), or its session expired (session.timeout.ms)."
        )
    elif cause.kind == JOINED:
        told, advice = f"{name} joined", ""
    elif cause.kind == UNKNOWN_CAUSE:
        told, advice = "of something that was not recorded", ""
    else:
        told, advice = f"of this: {cause.kind}{f' ({name})' if name else ''}", ""
    return Share(cause, tuple(numbers), told, advice)


def _waits(recent: Sequence[Happening]) -> str:
    waited: dict[str, list[Latecomer]] = {}
    for one in recent:
        for late in one.late:
            if late.waited < WORTH_TELLING:
                continue  # As long as it takes to notice a rebalance, with a heartbeat.
            waited.setdefault(process(late.who), []).append(late)
    if not waited:
        return ""
    worst = max(waited.values(), key=lambda some: sum(late.waited for late in some))
    length = sum(late.waited for late in worst)
    times = "once" if len(worst) == 1 else plural(len(worst), "time")
    return (
        f"The group waited {times} for {_name(worst[0].who)}, {duration(length)} in all. With "
        "group.protocol=consumer or cooperative-sticky the others read on meanwhile."
    )


def _period(period: Millis) -> str:
    """
    >>> _period(3_600_000), _period(6 * 3_600_000), _period(600_000), _period(168 * 3_600_000)
    ('hour', '6 hours', '10 minutes', '7 days')
    """
    if period == HOUR:
        return "hour"
    if period % (24 * HOUR) == 0:
        return plural(period // (24 * HOUR), "day")
    if period % HOUR == 0:
        return plural(period // HOUR, "hour")
    return plural(period // 60_000, "minute")
