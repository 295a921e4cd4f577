"""How the next target of a consumer group is computed."""

from __future__ import annotations

from uuid import UUID

from ottla.assignors import Assignor, RangeAssignor, UniformAssignor
from ottla.coordinator.consumer.logged import LoggedGroup
from ottla.coordinator.consumer.member import Change, Member, Partitions
from ottla.coordinator.consumer.records import RecordWriter
from ottla.coordinator.consumer.target import NewTarget, TargetBuilder
from ottla.coordinator.effects import Effects
from unit.coordinator.consumer_context import ORDERS, USERS, topics

TOPICS = topics(orders=6, users=3)


def orders(*numbers: int) -> dict[UUID, frozenset[int]]:
    return {ORDERS: frozenset(numbers)}


def member(member_id: str, *names: str, **fields: object) -> Member:
    subscribed = Member(member_id, subscribed_topic_names=names or ("orders",))
    return subscribed._replace(**fields)  # type: ignore[arg-type]


def group(*members: Member, **target: Partitions) -> LoggedGroup:
    logged, writer, fx = LoggedGroup("g"), RecordWriter("g"), Effects(now=0)
    for each in members:
        writer.member(each, fx)
    writer.new_target(target, 1, fx)
    for record in fx.records:
        logged.replay(*record)
    return logged


def build(logged: LoggedGroup, change: Change, *assignors: Assignor) -> NewTarget:
    chosen = {assignor.name: assignor for assignor in assignors or (UniformAssignor(), RangeAssignor())}
    return TargetBuilder(chosen).build(logged, change, TOPICS, 2)


def joining(new: Member) -> Change:
    return Change(Member(new.member_id), new, is_new=True)


def test_only_the_shares_that_change_are_written() -> None:
    logged = group(member("a"), member("b"), a=orders(0, 1, 2), b=orders(3, 4, 5))
    new = build(logged, joining(member("c")))
    assert new.changed == {"a": orders(0, 1), "b": orders(3, 4), "c": orders(2, 5)}
    assert dict(new.shares) == new.changed
    same = build(logged, Change(member("a"), member("a")))
    assert (same.changed, dict(same.shares)) == ({}, logged.target)


def test_members_with_different_subscriptions_are_assigned_by_the_assignor() -> None:
    logged = group(member("a"), a=orders(*range(6)))
    new = build(logged, joining(member("b", "users")))
    assert new.changed == {"b": {USERS: frozenset([0, 1, 2])}}
    assert new.shares == {"a": orders(*range(6)), **new.changed}


def test_the_assignor_that_most_members_ask_for_assigns() -> None:
    a, b = member("a", server_assignor="range"), member("b")
    logged = group(a, b, a=orders(0, 1), b=orders(2, 3, 4, 5))
    assert build(logged, Change(b, b)).shares == {"a": orders(0, 1, 2), "b": orders(3, 4, 5)}


def test_an_assignor_that_the_broker_no_longer_has_is_replaced_by_the_default() -> None:
    a = member("a", server_assignor="gone")
    builder = TargetBuilder({"range": RangeAssignor()})
    assert builder.default == "range"
    assert build(group(a, a=orders(0)), Change(a, a), RangeAssignor()).shares == {"a": orders(*range(6))}


def test_a_static_member_that_returns_has_the_target_of_its_predecessor() -> None:
    old, other = member("old", instance_id="i"), member("b")
    logged = group(old, other, old=orders(0, 1, 2), b=orders(3, 4, 5))
    new = old._replace(member_id="new")
    assert build(logged, Change(new, new, old)).shares == {"new": orders(0, 1, 2), "b": orders(3, 4, 5)}
