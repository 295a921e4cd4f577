"""The parts of a classic group: its roster, what the log says, and subscriptions."""

from __future__ import annotations

from group_context import GROUP, REBALANCE, SESSION, protocols, subscription

from ottla import errors
from ottla.coordinator import messages as m
from ottla.coordinator import records as r
from ottla.coordinator.classic.logged import Logged, created_record, empty_record, generation_record
from ottla.coordinator.classic.members import Member, Roster
from ottla.coordinator.classic.states import Status
from ottla.coordinator.classic.subscriptions import same_topics, topics_of_all


def member(name: str, *supported: str, instance_id: str | None = None, rebalance_timeout: int = REBALANCE) -> Member:
    request = m.JoinRequest(GROUP, SESSION, rebalance_timeout, "consumer", protocols(*supported or ["range"]))
    return Member.joining(request._replace(group_instance_id=instance_id, client_id=name), f"{name}-1")


def roster_of(*members: Member) -> Roster:
    roster = Roster()
    for each in members:
        roster.add(each)
    return roster


def recorded(name: str, subscription: bytes = b"", rebalance_timeout: int = 300_000) -> r.MemberMetadata:
    return r.MemberMetadata(f"{name}-1", None, name, "", rebalance_timeout, 20_000, subscription, b"share")


def test_replay_keeps_what_a_live_member_supports_and_takes_the_rest_from_the_record() -> None:
    live, changed = member("a", "range", "sticky"), member("b", "range")
    roster = roster_of(live, changed)
    value = r.GroupMetadataValue(
        "consumer", 2, "range", "b-1", 0, (recorded("b", b"other"), recorded("a", live.metadata("range"), -1))
    )
    roster.replay(value)
    assert list(roster.members) == ["b-1", "a-1"]
    assert roster.leader == "b-1"
    assert roster.members["a-1"] is live
    assert (live.assignment, live.session_timeout, live.rebalance_timeout) == (b"share", 20_000, 20_000)
    assert roster.members["b-1"].protocols == (m.MemberProtocol("range", b"other"),)
    roster.replay(r.GroupMetadataValue("consumer", 3, None, None, 0, ()))
    assert (roster.is_empty, roster.leader) == (True, None)


def test_a_replacement_becomes_a_member_when_its_record_is_replayed() -> None:
    roster = roster_of(member("a", instance_id="i1"))
    new = roster.replacement = member("b", "range", "sticky", instance_id="i1")
    value = recorded("b", new.metadata("range"))._replace(group_instance_id="i1")
    assert roster.problem("b-1", None) is errors.UnknownMemberId
    roster.replay(r.GroupMetadataValue("consumer", 1, "range", "b-1", 0, (value,)))
    assert (roster.members, roster.static, roster.replacement) == ({"b-1": new}, {"i1": "b-1"}, None)
    assert new.protocols == protocols("range", "sticky")


def test_only_replay_changes_what_is_logged() -> None:
    logged = Logged()
    assert logged.assignments == {}
    status = Status(now=3)
    status.protocol_type, status.protocol, status.generation = "consumer", "range", 4
    a, b = member("a"), member("b", instance_id="i")
    value = generation_record(status, [a, b], "a-1", {"a-1": b"A"})
    assert value == r.GroupMetadataValue(
        "consumer",
        4,
        "range",
        "a-1",
        3,
        (
            r.MemberMetadata("a-1", None, "a", "", 300_000, 45_000, a.metadata("range"), b"A"),
            r.MemberMetadata("b-1", "i", "b", "", 300_000, 45_000, b.metadata("range"), b""),
        ),
    )
    logged.replay(value)
    assert logged.assignments == {"a-1": b"A", "b-1": b""}
    logged.replay(empty_record(status, 5, now=9))
    assert logged.assignments == {}


def test_a_group_is_written_empty_when_it_is_created_and_when_its_last_member_has_gone() -> None:
    status = Status(now=3)
    assert created_record(now=7) == r.GroupMetadataValue("", 0, None, None, 7, ())
    status.protocol_type = "connect"
    assert empty_record(status, 5, now=9) == r.GroupMetadataValue("connect", 5, None, None, 9, ())


def test_topics_are_known_if_all_subscriptions_can_be_read() -> None:
    assert topics_of_all([subscription("a", "b"), subscription("b", "c", version=1)]) == {"a", "b", "c"}
    assert topics_of_all([subscription("a"), b"\0"]) is None
    assert topics_of_all([]) == set()


def test_a_subscription_is_the_same_if_the_order_of_topics_or_the_owned_partitions_differ() -> None:
    before = protocols("range", metadata=subscription("a", "b"))
    assert same_topics(before, protocols("range", metadata=subscription("b", "a", version=1)))
    assert not same_topics(before, protocols("range", metadata=subscription("b")))
    assert not same_topics(before, protocols("sticky", metadata=subscription("a", "b")))
    assert not same_topics(protocols("range", metadata=b"x"), protocols("range", metadata=b"y"))


def test_a_pending_member_makes_a_group_not_empty_until_it_joins_or_leaves() -> None:
    roster = Roster()
    roster.pending.update({"a-1": None, "b-1": None})
    assert not roster.is_empty
    roster.add(member("a"))
    roster.drop("b-1")
    assert (list(roster.pending), list(roster.members)) == ([], ["a-1"])


def test_a_swapped_member_has_the_old_ones_place_and_leads_if_that_did() -> None:
    old, new = member("a", instance_id="i1"), member("z", instance_id="i1")
    roster = roster_of(old, member("b"))
    roster.swap(old, new)
    assert (list(roster.members), roster.leader, roster.static) == (["z-1", "b-1"], "z-1", {"i1": "z-1"})
