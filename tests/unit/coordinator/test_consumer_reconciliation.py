"""The next step of a member towards its target."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import pytest

from ottla import errors
from ottla.coordinator.consumer.member import Member, MemberState, Partitions
from ottla.coordinator.consumer.reconciliation import Goal, reconcile
from unit.coordinator.consumer_context import ORDERS, USERS

STABLE, UNREVOKED, UNRELEASED = (
    MemberState.STABLE,
    MemberState.UNREVOKED_PARTITIONS,
    MemberState.UNRELEASED_PARTITIONS,
)


def orders(*numbers: int) -> dict[UUID, frozenset[int]]:
    return {ORDERS: frozenset(numbers)} if numbers else {}


def member(*assigned: int, epoch: int = 1, state: MemberState = STABLE, revoking: Partitions | None = None) -> Member:
    return Member("a", member_epoch=epoch, state=state, assigned=orders(*assigned), pending_revocation=revoking or {})


def goal(
    *target: int,
    epoch: int = 2,
    owned: Partitions | None = None,
    owners: Mapping[int, str] | None = None,
    subscribed: frozenset[UUID] = frozenset([ORDERS]),
    changed: bool = False,
) -> Goal:
    return Goal(epoch, orders(*target), subscribed, lambda _: owners or {}, changed, owned)


def step(before: Member, to: Goal) -> tuple[int, MemberState, Partitions, Partitions]:
    after = reconcile(before, to)
    return after.member_epoch, after.state, after.assigned, after.pending_revocation


def test_a_member_that_keeps_what_it_has_enters_the_epoch() -> None:
    assert step(member(0, 1), goal(0, 1)) == (2, STABLE, orders(0, 1), {})


def test_a_member_takes_what_nobody_owns() -> None:
    assert step(member(0), goal(0, 1)) == (2, STABLE, orders(0, 1), {})


def test_a_member_waits_in_the_new_epoch_for_what_others_own() -> None:
    assert step(member(0), goal(0, 1, 2, owners={1: "b"})) == (2, UNRELEASED, orders(0, 2), {})
    assert step(member(0, 2, epoch=2, state=UNRELEASED), goal(0, 1, 2)) == (2, STABLE, orders(0, 1, 2), {})


def test_a_member_gives_up_partitions_in_its_old_epoch_and_takes_none_meanwhile() -> None:
    assert step(member(0, 1), goal(0, 2)) == (1, UNREVOKED, orders(0), orders(1))


def test_a_member_that_says_that_it_does_not_own_them_need_not_give_them_up() -> None:
    assert step(member(0, 1), goal(0, 2, owned=orders(0))) == (2, STABLE, orders(0, 2), {})


def test_a_member_that_still_owns_what_it_must_give_up_waits() -> None:
    revoking = member(0, state=UNREVOKED, revoking=orders(1))
    assert reconcile(revoking, goal(0, 2)) is revoking
    assert reconcile(revoking, goal(0, 2, owned=orders(0, 1))) is revoking
    assert step(revoking, goal(0, 2, owned=orders(0))) == (2, STABLE, orders(0, 2), {})


def test_a_member_may_get_back_what_it_had_to_give_up() -> None:
    revoking = member(0, state=UNREVOKED, revoking=orders(1))
    assert step(revoking, goal(0, 1, owned=orders(0), owners={1: "a"})) == (2, STABLE, orders(0, 1), {})


def test_a_topic_that_the_member_unsubscribed_from_is_given_up_at_once() -> None:
    both = member(0, epoch=2)._replace(assigned={**orders(0), USERS: frozenset([1])})
    left = goal(0, changed=True)
    assert step(both, left) == (2, UNREVOKED, orders(0), {USERS: frozenset([1])})
    assert step(both, left._replace(owned=orders(0))) == (2, STABLE, orders(0), {})
    assert reconcile(member(0, epoch=2), left) == member(0, epoch=2)


def test_a_target_of_topics_that_the_member_does_not_subscribe_to_is_not_taken() -> None:
    assert step(member(), goal(0, subscribed=frozenset())) == (2, STABLE, {}, {})


def test_a_member_in_an_unknown_state_must_own_nothing() -> None:
    unknown = member(0, state=MemberState.UNKNOWN)
    for owned in (None, orders(0)):
        with pytest.raises(errors.FencedMemberEpoch, match="unknown state"):
            reconcile(unknown, goal(0, owned=owned))
    assert step(unknown, goal(0, owned={})) == (2, STABLE, orders(0), {})
