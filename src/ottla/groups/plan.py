"""What an assignor would do with a group, or with a changed version of it. Nothing is changed.

`plan` is pure: it turns members and partition counts into moves.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla.assignors import BY_NAME, Partitions, Subscription
from ottla.assignors.sticky import encode_user_data
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.groups import GroupDescription, GroupMember
from ottla.errors import ConfigError, OttlaError
from ottla.suggestions import hint
from ottla.types import TopicPartition
from ottla.wording import plural

ASSIGNORS = tuple(name for name in BY_NAME if name != "broadcast")  # with broadcast, nothing ever moves
STAYS, NEW, LEAVES = "stays", "new", "leaves"
_ROUNDS = 3  # no assignor needs more


@dataclass(frozen=True, slots=True)
class PlannedMember:
    """A member with its partitions before and after."""

    name: str
    client_id: str
    instance_id: str | None
    topics: frozenset[str]
    status: str
    before: frozenset[TopicPartition]
    after: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class Move:
    """A partition that gets a new owner; `giver` is None if it had none."""

    key: TopicPartition
    giver: str | None
    taker: str


@dataclass(frozen=True, slots=True)
class Plan:
    assignor: str
    members: tuple[PlannedMember, ...]
    moves: tuple[Move, ...]
    kept: int
    rebalances: int

    @property
    def moved(self) -> list[Move]:
        """The moves that take a partition away from a member."""
        return [move for move in self.moves if move.giver is not None]


async def plan_for(
    admin: AsyncAdmin,
    group: GroupDescription,
    assignor: str | None,
    *,
    add: int,
    remove: Sequence[str],
    partitions: Mapping[str, str],
) -> Plan:
    """Plan with the assignor, or with that of the group. Raises ConfigError if the changes do not fit the group."""
    name = assignor or group.assignor
    if name not in ASSIGNORS:
        raise ConfigError(
            f"cannot plan with the assignor of group {group.group_id!r} ({name or 'none'}): use --assignor NAME"
        )
    topics = (await admin.cluster.refresh(None)).topics
    counts = {topic: len(info.partitions) for topic, info in topics.items() if not info.error}
    members = planned_members(group, counts, add=add, remove=remove)
    return plan(name, grown(counts, partitions, members), members)


# ── the planned group ─────────────────────────────────────────────────────────────────────────────────────────────


def planned_members(
    group: GroupDescription, topics: Iterable[str], *, add: int, remove: Sequence[str]
) -> list[PlannedMember]:
    """Return the group's members plus new ones, which get the most common subscription."""
    if not group.members:
        raise OttlaError(
            f"group {group.group_id!r} has no members, so its subscription is unknown: start a member first"
        )
    leaving = {_found(group, text).member_id for text in remove}
    members = [_present(member, topics, leaving) for member in group.members]
    if len(leaving) == len(members) and not add:
        raise ConfigError("the plan has no members left: remove fewer, or use --add")
    ((usual, _),) = Counter(sorted((each.topics for each in members), key=sorted)).most_common(1)
    new = [f"new-{number + 1}" for number in range(add)]
    return members + [PlannedMember(name, name, None, usual, NEW, frozenset()) for name in new]


def _present(member: GroupMember, topics: Iterable[str], leaving: Iterable[str]) -> PlannedMember:
    return PlannedMember(
        member.member_id,
        member.client_id,
        member.instance_id,
        frozenset(_subscribed(member, topics)),
        LEAVES if member.member_id in leaving else STAYS,
        frozenset(member.assignment),
    )


def _subscribed(member: GroupMember, topics: Iterable[str]) -> set[str]:
    """Return the topics that a member subscribes to. Patterns are matched with `re`, not with the broker's dialect."""
    subscribed = {*member.topics, *(key.topic for key in member.assignment)}
    if member.topic_regex is not None:
        try:
            pattern = re.compile(member.topic_regex)
        except re.error:
            return subscribed
        subscribed.update(topic for topic in topics if pattern.fullmatch(topic))
    return subscribed


def _found(group: GroupDescription, text: str) -> GroupMember:
    for matches in (
        [member for member in group.members if text in (member.member_id, member.instance_id)],
        [member for member in group.members if text == member.client_id],
        [member for member in group.members if member.member_id.startswith(text)],
    ):
        if len(matches) > 1:
            ids = ", ".join(member.member_id for member in matches[:3])
            raise ConfigError(f"{text!r} matches {len(matches)} members ({ids}, …): use the full member id")
        if matches:
            return matches[0]
    names = [name for member in group.members for name in (member.member_id, member.client_id)]
    near = hint(text, names) or f"; `ottla groups members {group.group_id}` lists them"
    raise ConfigError(f"group {group.group_id!r} has no member {text!r}{near}")


def grown(counts: Mapping[str, int], given: Mapping[str, str], members: Iterable[PlannedMember]) -> dict[str, int]:
    """Return the partition counts with the changes of ``--partitions``."""
    subscribed = {topic for member in members for topic in member.topics}
    changed = dict(counts)
    for topic, text in given.items():
        if not text.isdecimal() or int(text) < 1:
            raise ConfigError(f"--partitions {topic}={text}: write a number of partitions, such as {topic}=12")
        if topic not in subscribed:
            near = hint(topic, subscribed) or f"; it subscribes to {', '.join(sorted(subscribed))}"
            raise ConfigError(f"the group does not subscribe to topic {topic!r}{near}")
        if int(text) < counts.get(topic, 0):
            raise ConfigError(f"topic {topic!r} has {counts[topic]} partitions already; the number can only grow")
        changed[topic] = int(text)
    return changed


# ── the plan ──────────────────────────────────────────────────────────────────────────────────────────────────────


def plan(assignor: str, counts: Mapping[str, int], members: Sequence[PlannedMember]) -> Plan:
    """Run the assignor until nothing moves any more; a cooperative one needs two rebalances."""
    staying = [member for member in members if member.status != LEAVES]
    owned = {member.name: _by_topic(member.before) for member in staying}
    rebalances = 0
    while rebalances < _ROUNDS:
        result = BY_NAME[assignor]().assign(counts, _subscriptions(assignor, staying, owned))
        given = {name: _by_topic(_keys(each.partitions)) for name, each in result.items()}
        if given == owned:
            break
        owned = given
        rebalances += 1
        if not BY_NAME[assignor].cooperative:
            break
    after = {name: frozenset(_keys(partitions)) for name, partitions in owned.items()}
    planned = tuple(_with_after(member, after.get(member.name, frozenset())) for member in members)
    moves = _moves(planned)
    kept = sum(len(member.before & member.after) for member in planned)
    return Plan(assignor, planned, moves, kept, rebalances)


def _subscriptions(
    assignor: str, members: Iterable[PlannedMember], owned: Mapping[str, Partitions]
) -> dict[str, Subscription]:
    return {
        member.name: Subscription(
            sorted(member.topics),
            encode_user_data(owned[member.name], 0) if assignor == "sticky" else None,
            owned[member.name],
            generation=0,
            group_instance_id=member.instance_id,
        )
        for member in members
    }


def _by_topic(keys: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for key in sorted(keys):
        topics.setdefault(key.topic, []).append(key.partition)
    return topics


def _keys(partitions: Partitions) -> Iterable[TopicPartition]:
    return (TopicPartition(topic, number) for topic, numbers in partitions.items() for number in numbers)


def _with_after(member: PlannedMember, after: frozenset[TopicPartition]) -> PlannedMember:
    return PlannedMember(
        member.name, member.client_id, member.instance_id, member.topics, member.status, member.before, after
    )


def _moves(members: Sequence[PlannedMember]) -> tuple[Move, ...]:
    owner = {key: member.name for member in members for key in member.before}
    moves = [
        Move(key, owner.get(key), member.name)
        for member in members
        for key in member.after
        if owner.get(key) != member.name
    ]
    return tuple(sorted(moves, key=lambda move: move.key))


def summary(group: GroupDescription, planned: Plan) -> str:
    """One sentence about a plan."""
    moved, new = len(planned.moved), len(planned.moves) - len(planned.moved)
    if not planned.moves and planned.rebalances == 0:
        return f"{planned.assignor} would move nothing: {plural(planned.kept, 'partition')} kept"
    fresh = f", {plural(new, 'partition')} without an owner get one" if new else ""
    rounds = f", in {planned.rebalances} rebalances" if planned.rebalances > 1 else ""
    sizes = [len(member.after) for member in planned.members if member.status != LEAVES]
    spread = f"{min(sizes)}" if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)}"
    instead = f" (now {group.assignor})" if group.assignor and group.assignor != planned.assignor else ""
    return (
        f"{planned.assignor}{instead} would move {plural(moved, 'partition')}, {planned.kept} kept{fresh}{rounds}; "
        f"{plural(len(sizes), 'member')} with {spread} each"
    )
