"""Format the rebalances of a group: the cause, the duration, and the moved partitions. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from ottla.clients.admin.groups import CONSUMER, GroupDescription, GroupMember
from ottla.coordinator.history import EMPTY, INTERRUPTED, MAX_LATE, STABLE, UNCHANGED
from ottla.coordinator.records import HistoryValue, Latecomer, PartitionMove, Trigger, Who
from ottla.groups.offsets import format_partitions
from ottla.metadata.history import Move
from ottla.monitoring.derived import UNKNOWN_CAUSE, Derived
from ottla.times import clock_time, duration
from ottla.types import Millis, TopicPartition
from ottla.wording import plural

SHOWN_ID = 8
NOBODY = "nobody"
_WITH_UUID = re.compile(r"(?P<name>.+-[0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_SETTLED = ("Stable", "Empty", "Dead")


class Names:
    """Short names of members: the id without most of its random part, plus the client id if the id lacks it."""

    def __init__(self, members: Iterable[GroupMember], history: Iterable[HistoryValue], *, full: bool = False) -> None:
        self._full = full
        self._clients = {member.member_id: member.client_id for member in members}
        for value in history:
            known = [trigger.who for trigger in value.triggers] + [late.who for late in value.late]
            self.add(who for who in known if who is not None)

    def add(self, some: Iterable[Who]) -> None:
        """Learn of more members."""
        self._clients.update({who.member_id: who.client_id for who in some})

    def of(self, member_id: str | None) -> str:
        if not member_id:
            return NOBODY
        if self._full:
            return member_id
        match = _WITH_UUID.fullmatch(member_id)
        if match is not None:
            return match["name"]
        client = self._clients.get(member_id)
        return f"{client}-{member_id[:SHOWN_ID]}" if client else member_id[:SHOWN_ID]

    def process(self, member_id: str) -> str:
        """A name that stays the same when a member joins again with another id."""
        client = self._clients.get(member_id)
        if client:
            return client
        match = _WITH_UUID.fullmatch(member_id)
        return match["name"].rpartition("-")[0] if match is not None else self.of(member_id)

    def in_full(self, who: Who) -> str:
        """A member's name with its client, instance id and host."""
        name = self.of(who.member_id)
        facts = [f"client {who.client_id}"] if not name.startswith(who.client_id) else []
        facts += [f"static member {who.group_instance_id}"] if who.group_instance_id else []
        about = f" ({', '.join(facts)})" if facts else ""
        return f"{name}{about} on {who.client_host.lstrip('/') or 'an unknown host'}"


def headline(group: GroupDescription) -> str:
    by = f", assignor {group.assignor}" if group.assignor else ""
    members = plural(len(group.members), "member")
    return f"group {group.group_id}: {group.state}, {members}, {group.type.lower()} protocol{by}"


def now_lines(group: GroupDescription, under_way: HistoryValue | None, names: Names) -> Iterator[str]:
    """The current rebalance, if any: its start, its cause, and the members that the group waits for."""
    if under_way is not None:
        yield f"#{under_way.number}  {clock_time(under_way.started_at)}  in progress; the group is {group.state}"
        yield from _labelled("because", _because(under_way, names))
        yield from _labelled("late", [_late(late, names) for late in under_way.late])
        yield from _labelled("waiting", _shortened(_waiting(group, under_way, names)))
    elif group.state not in _SETTLED:
        yield f"now: {group.state}; run this command again to see the cause and the members that the group waits for"


def _waiting(group: GroupDescription, under_way: HistoryValue, names: Names) -> list[str]:
    if group.type == CONSUMER:
        return _behind(group, names)
    members = {member.member_id for member in group.members}
    task = ", the leader, to assign" if under_way.joined_at >= 0 else " to join again"
    return [f"for {names.in_full(who)}{task}" for who in under_way.waiting_for if who.member_id in members]


def _behind(group: GroupDescription, names: Names) -> list[str]:
    """Members behind the group's epoch; if there are none, members that have not taken over free partitions."""
    behind, taking = [], []
    for member in group.members:
        who = names.in_full(Who(member.member_id, member.instance_id, member.client_id, member.host))
        missing = set(member.target or ()).difference(member.assignment)
        if member.epoch is not None and member.epoch < 0:
            behind.append(f"for {who}, a static member that left temporarily")
        elif member.epoch != group.epoch:
            behind.append(f"for {who}, which is in epoch {member.epoch} of {group.epoch}")
        elif missing:
            taking.append(f"for {who} to take {format_partitions(missing)}")
    return behind or taking


def _shortened(lines: Sequence[str]) -> Iterator[str]:
    yield from lines[:MAX_LATE]
    if len(lines) > MAX_LATE:
        yield f"and {len(lines) - MAX_LATE} more"


def rebalance_lines(value: HistoryValue, names: Names, group_type: str = "") -> Iterator[str]:
    """One rebalance: a line with its number, and indented details."""
    yield f"#{value.number}  {clock_time(value.started_at)}  {_result(value, group_type)}"
    yield from _labelled("because", _because(value, names))
    yield from _labelled("waited", _waited(value))
    yield from _labelled("late", [_late(late, names) for late in value.late])
    yield from _labelled("members", _members(value, names))
    yield from _labelled("moved", _moved(value, names))


def derived_lines(value: Derived, names: Names, group_type: str) -> Iterator[str]:
    """One rebalance, as far as Kafka's own records show it."""
    word = "epoch" if group_type == CONSUMER else "generation"
    if value.missing:
        which = plural(value.missing, f"earlier {word}")
        yield f"-   {which} unknown: compaction removed the records"
    yield f"#{value.generation}  {clock_time(value.at)}  {word} {value.generation}, {plural(value.members, 'member')}"
    yield from _labelled("joined", _shortened([names.in_full(who) for who in value.joined]))
    yield from _labelled("gone", _shortened([names.in_full(who) for who in value.gone]))
    yield from _labelled("replaced", _shortened([names.in_full(who) for who in value.replaced]))
    if value.causes == (UNKNOWN_CAUSE,):
        yield from _labelled("because", ["unknown; no member is known to have joined or gone"])
    facts = [f"assignor {value.assignor}" if value.assignor else "", f"leader {names.of(value.leader)}"]
    if value.leader:
        yield from _labelled("by", [", ".join(fact for fact in facts if fact)])
    if value.partitions_moved is not None:
        yield from _labelled("moved", [f"{plural(value.partitions_moved, 'partition')}, {value.partitions_kept} kept"])
    else:
        yield from _labelled("moved", ["unknown"])


def move_line(move: Move) -> str:
    """A coordinator that was replaced by another broker.

    >>> move_line(Move(1_700_000_000_000, 1, 2, 0, "the process of broker 1 is gone")).split("  ")[-1]
    'the coordinator moved from broker 1 to broker 2: the process of broker 1 is gone'
    """
    what = f"the coordinator moved from broker {move.source} to broker {move.target}"
    if move.source == move.target:
        what = f"broker {move.target} is the coordinator again"
    without = f", after {duration(move.without)} without one" if move.without else ""
    return f"-   {clock_time(move.at)}  {what}{without}{f': {move.reason}' if move.reason else ''}"


def _labelled(label: str, lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield f"    {label:<9}{line}"
        label = ""


def _result(value: HistoryValue, group_type: str) -> str:
    word = "epoch" if group_type == CONSUMER else "generation"
    number = f"{word} {value.generation}" if value.generation >= 0 else f"no {word}"
    took = duration(value.ended_at - value.started_at)
    endings = {
        STABLE: f"{number}, stable after {took}",
        EMPTY: f"{number}, no members left after {took}",
        UNCHANGED: f"{number} unchanged: no rebalance was needed",
        INTERRUPTED: f"{number} unchanged: interrupted when the coordinator stopped, after {took}",
    }
    return endings.get(value.outcome, f"{number}, {value.outcome} after {took}")


def _because(value: HistoryValue, names: Names) -> Iterator[str]:
    for trigger in value.triggers:
        yield _trigger(trigger, value.started_at, names)
    if value.triggers_left_out:
        yield f"and {value.triggers_left_out} more"
    if not value.triggers:
        yield "the cause was not recorded"


def _trigger(trigger: Trigger, started_at: Millis, names: Names) -> str:
    later = f", {duration(trigger.at - started_at)} later" if trigger.at > started_at else ""
    if trigger.who is None:
        return f"{trigger.kind}{later}{f': {trigger.reason}' if trigger.reason else ''}"
    reason = f'; reason: "{trigger.reason}"' if trigger.reason else ""
    return f"{trigger.kind}: {names.in_full(trigger.who)}{later}{reason}"


def _waited(value: HistoryValue) -> Iterator[str]:
    if value.joined_at >= 0:
        joins = duration(value.joined_at - value.started_at)
        yield f"{joins} for joins, {duration(value.ended_at - value.joined_at)} for the leader's assignment"
    if value.revoked_at >= 0:
        revoked = duration(value.revoked_at - value.started_at)
        yield f"{revoked} for revocations, {duration(value.ended_at - value.revoked_at)} for new owners"


def _late(late: Latecomer, names: Names) -> str:
    waited = duration(late.waited)
    who = names.in_full(late.who)
    if late.removed:
        return f"{who} did not respond within {waited} and was removed"
    return f"{who} {late.did or 'responded'} after {waited}"


def _members(value: HistoryValue, names: Names) -> Iterator[str]:
    if value.members:
        facts = [str(value.members), f"assignor {value.protocol}" if value.protocol else ""]
        facts.append(f"leader {names.of(value.leader)}" if value.leader else "")
        yield ", ".join(fact for fact in facts if fact)


def _moved(value: HistoryValue, names: Names) -> Iterator[str]:
    if not value.partitions_moved:
        if value.partitions_kept:
            yield f"nothing; all of {plural(value.partitions_kept, 'partition')} kept"
        return
    yield f"{plural(value.partitions_moved, 'partition')}, {value.partitions_kept} kept"
    ways: dict[tuple[str, str], list[PartitionMove]] = {}
    for move in value.moves:
        ways.setdefault((names.of(move.source), names.of(move.target)), []).append(move)
    for (source, target), moves in ways.items():
        partitions = format_partitions(TopicPartition(move.topic, move.partition) for move in moves)
        yield f"  {source} -> {target}  {partitions}"
    if value.partitions_moved > len(value.moves):
        yield f"  and {value.partitions_moved - len(value.moves)} more"


def rebalance_json(value: HistoryValue) -> dict[str, Any]:
    """The stored record, plus the durations of its phases."""
    joined, revoked = value.joined_at >= 0, value.revoked_at >= 0
    return asdict(value) | {
        "took_ms": value.ended_at - value.started_at,
        "waited_for_joins_ms": value.joined_at - value.started_at if joined else None,
        "waited_for_leader_ms": value.ended_at - value.joined_at if joined else None,
        "waited_for_revocations_ms": value.revoked_at - value.started_at if revoked else None,
        "waited_for_takers_ms": value.ended_at - value.revoked_at if revoked else None,
    }


def move_json(move: Move) -> dict[str, Any]:
    return {
        "at": move.at,
        "from": move.source,
        "to": move.target,
        "without_ms": move.without,
        "reason": move.reason,
    }
