"""The next step of a member towards its target assignment, as one pure function (KIP-848: reconciliation).

    STABLE ──new target──▶ must give up some? ──yes──▶ UNREVOKED_PARTITIONS (in its old epoch)
                               │ no                            │ gave them up
                               ▼                               ▼
                           in the target's epoch: STABLE, or UNRELEASED_PARTITIONS while others own some

A partition has one owner at a time. A member gets it when nobody has it assigned or has to give it up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import NamedTuple, TypeAlias
from uuid import UUID

from ottla import errors
from ottla.coordinator.consumer.member import Member, MemberState, Partitions

OwnersOf: TypeAlias = Callable[[UUID], Mapping[int, str]]
"""The owner of each partition of a topic. A member owns what it still has to give up."""
_NONE: frozenset[int] = frozenset()


class Goal(NamedTuple):
    """The target of a member, and what the next step depends on."""

    epoch: int
    target: Partitions
    subscribed: Set[UUID]
    """The existing topics that the member subscribes to."""
    owners_of: OwnersOf
    subscription_changed: bool
    owned: Partitions | None
    """What the member says it owns; None if it did not say."""


def reconcile(member: Member, goal: Goal) -> Member:
    """Return the member after its next step, or the same member if it must wait."""
    match member.state:
        case MemberState.STABLE:
            if member.member_epoch != goal.epoch:
                return _advance(member, goal, member.member_epoch)
            return _drop_unsubscribed(member, goal) if goal.subscription_changed else member
        case MemberState.UNREVOKED_PARTITIONS:
            if _has_any(goal.owned, member.pending_revocation):
                return _drop_unsubscribed(member, goal) if goal.subscription_changed else member
            return _advance(member, goal, member.member_epoch)
        case MemberState.UNRELEASED_PARTITIONS:
            return _advance(member, goal, member.member_epoch)
        case MemberState.UNKNOWN:
            if goal.owned is None or goal.owned:
                raise errors.FencedMemberEpoch(
                    "The consumer group member is in an unknown state. "
                    "The member must abandon all its partitions and rejoin."
                )
            return _advance(member, goal, goal.epoch)


def _has_any(owned: Partitions | None, given_up: Partitions) -> bool:
    """Return whether the member still owns some of what it must give up. If it does not say, it does."""
    if owned is None:
        return True
    return any(numbers & given_up.get(topic_id, _NONE) for topic_id, numbers in owned.items())


def _advance(member: Member, goal: Goal, epoch_if_revoking: int) -> Member:
    if goal.target == member.assigned and goal.target.keys() <= goal.subscribed:
        return member.in_epoch(goal.epoch, MemberState.STABLE, member.assigned)  # It keeps what it has, as is usual.
    kept: dict[UUID, frozenset[int]] = {}
    given_up: dict[UUID, frozenset[int]] = {}
    added: dict[UUID, frozenset[int]] = {}
    unreleased = False
    topic_ids = goal.target.keys() | member.assigned.keys()
    for topic_id in sorted(topic_ids, key=_number) if len(topic_ids) > 1 else topic_ids:
        target = goal.target.get(topic_id, _NONE) if topic_id in goal.subscribed else _NONE
        now = member.assigned.get(topic_id, _NONE)
        wanted = target - now
        own = member.pending_revocation.get(topic_id, _NONE)
        free = wanted.difference(goal.owners_of(topic_id)) | (wanted & own)
        unreleased |= len(free) < len(wanted)
        for partitions, numbers in ((kept, now & target), (given_up, now - target), (added, free)):
            if numbers:
                partitions[topic_id] = numbers

    if given_up and _has_any(goal.owned, given_up):
        return member.in_epoch(epoch_if_revoking, MemberState.UNREVOKED_PARTITIONS, kept, given_up)
    for topic_id, numbers in added.items():
        kept[topic_id] = kept.get(topic_id, _NONE) | numbers
    state = MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE
    return member.in_epoch(goal.epoch, state, kept)


def _number(topic_id: UUID) -> int:
    return topic_id.int


def _drop_unsubscribed(member: Member, goal: Goal) -> Member:
    """Give up the topics that the member has just unsubscribed from. The rest waits for the next target."""
    gone = {topic_id: numbers for topic_id, numbers in member.assigned.items() if topic_id not in goal.subscribed}
    if not gone:
        return member
    kept = {topic_id: numbers for topic_id, numbers in member.assigned.items() if topic_id not in gone}
    given_up = dict(member.pending_revocation)
    for topic_id, numbers in gone.items():
        given_up[topic_id] = given_up.get(topic_id, _NONE) | numbers
    if _has_any(goal.owned, given_up):
        return member._replace(state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, pending_revocation=given_up)
    return member._replace(assigned=kept)
