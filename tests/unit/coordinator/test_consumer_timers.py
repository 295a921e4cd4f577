"""The timers of the members of a consumer group."""

from __future__ import annotations

from ottla.coordinator import records as r
from ottla.coordinator.config import GroupConfig, Times
from ottla.coordinator.consumer.member import Member, MemberState
from ottla.coordinator.consumer.timers import JOIN, REBALANCE, SESSION, SYNC, MemberTimers
from ottla.coordinator.effects import Effects
from ottla.coordinator.group import Shard

CLASSIC = r.ClassicMemberMetadata(10_000, (r.ClassicProtocol("range", b""),))


def timers(times: Times | None = None) -> MemberTimers:
    return MemberTimers(Shard(GroupConfig(), lambda: "id", dict, lambda _: times), "g")


def member(member_id: str = "a", **fields: object) -> Member:
    return Member(member_id, rebalance_timeout=60_000)._replace(**fields)  # type: ignore[arg-type]


def test_the_session_timeout_is_the_groups_or_what_a_classic_member_joined_with() -> None:
    fx = Effects(now=100)
    for each in (member("a"), member("b", classic=CLASSIC)):
        timers(Times(50_000, 5_000)).touch(each, fx)
    assert fx.timers == {(SESSION, "g", "a"): 50_100, (SESSION, "g", "b"): 10_100}


def test_time_to_give_up_partitions_is_limited_until_they_are_given_up() -> None:
    stable, revoking = member(), member(state=MemberState.UNREVOKED_PARTITIONS)
    for before, after, expected in (
        (stable, revoking, {(REBALANCE, "g", "a"): 60_100}),
        (revoking, stable, {(REBALANCE, "g", "a"): None}),
        (stable, stable, {}),
        (stable, revoking._replace(classic=CLASSIC), {}),
    ):
        fx = Effects(now=100)
        timers().moved(before, after, fx)
        assert fx.timers == expected


def test_a_member_has_its_rebalance_timeout_to_join_from_the_first_time_that_it_is_told() -> None:
    told, classic = timers(), member(classic=CLASSIC)
    first, again, joined = Effects(now=0), Effects(now=5_000), Effects(now=6_000)
    told.told_to_join(classic, first)
    told.told_to_join(classic, again)
    assert (first.timers, again.timers) == ({(JOIN, "g", "a"): 60_000}, {})
    told.joined(classic, joined)
    assert joined.timers == {(SESSION, "g", "a"): 16_000, (SYNC, "g", "a"): 66_000, (JOIN, "g", "a"): None}
    told.told_to_join(classic, again)
    assert again.timers == {(JOIN, "g", "a"): 65_000}


def test_a_sync_in_time_cancels_its_timer() -> None:
    synced, fx = timers(), Effects(now=0)
    synced.synced(member(classic=CLASSIC), fx)
    assert fx.timers == {(SYNC, "g", "a"): None, (SESSION, "g", "a"): 10_000}


def test_all_timers_of_a_member_that_left_are_cancelled() -> None:
    left = timers()
    left.touch(member(), Effects(now=0))
    fx = Effects(now=0)
    left.forget("a", fx)
    assert fx.timers == dict.fromkeys([(name, "g", "a") for name in (SESSION, REBALANCE, JOIN, SYNC)])
    assert not left.sessions.by_member


def test_every_member_gets_its_whole_time_when_the_timers_start() -> None:
    started = timers()
    for member_id in ("a", "gone"):
        started.touch(member(member_id), Effects(now=0))
    fx = Effects(now=1_000)
    started.start([member(), member("b", state=MemberState.UNREVOKED_PARTITIONS)], fx)
    assert fx.timers == {(SESSION, "g", "a"): 46_000, (SESSION, "g", "b"): 46_000, (REBALANCE, "g", "b"): 61_000}
    assert started.sessions.by_member.keys() == {"a", "b"}
