"""Invalid requests of members: each gets the right error code, and the group continues."""

from __future__ import annotations

from typing import Any

import pytest

from ..clients.base import TP
from ..conftest import MakeTopic, StartBroker
from ..wire import Wire
from .conftest import GROUP_CONFIG, ConnectRaw
from .raw import (
    FENCED_INSTANCE_ID,
    GROUP_MAX_SIZE_REACHED,
    ILLEGAL_GENERATION,
    INCONSISTENT_GROUP_PROTOCOL,
    INVALID_GROUP_ID,
    INVALID_SESSION_TIMEOUT,
    MEMBER_ID_REQUIRED,
    OK,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    UNKNOWN_SERVER_ERROR,
    Crowd,
    RawMember,
    find,
    subscription,
)


def goes_on(member: RawMember) -> bool:
    """Return whether the member is still in the group, which is stable."""
    return member.heartbeat() == OK


# ── groups and timeouts ───────────────────────────────────────────────────────────────────────────────────────────


def test_an_empty_group_id(connect_raw: ConnectRaw) -> None:
    nobody = connect_raw()
    nobody.group = ""
    assert nobody.join() == INVALID_GROUP_ID
    assert nobody.sync() == INVALID_GROUP_ID
    assert nobody.heartbeat() == INVALID_GROUP_ID
    assert int(nobody.call("leave_group", 5, {"members": [nobody.identity]}).error_code) == INVALID_GROUP_ID


@pytest.mark.parametrize("session_timeout", [-1, 0, 1, 2**31 - 1])
def test_a_session_timeout_out_of_range(connect_raw: ConnectRaw, session_timeout: int) -> None:
    there, other = connect_raw(), connect_raw()
    there.settle_alone()
    assert other.join(session_timeout=session_timeout) == INVALID_SESSION_TIMEOUT
    assert goes_on(there)


def test_a_group_that_is_full(start_own_broker: StartBroker, connect_raw: ConnectRaw, group: str) -> None:
    broker = start_own_broker(**GROUP_CONFIG, **{"group.max.size": "1"})
    with Wire(broker.bootstrap_servers) as wire:
        find(wire, group)
    there, other = (connect_raw(bootstrap_servers=broker.bootstrap_servers) for _ in range(2))
    there.settle_alone()
    assert other.join() == GROUP_MAX_SIZE_REACHED
    assert goes_on(there)


# ── who is there ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_requests_of_somebody_in_a_group_that_is_not_there(connect_raw: ConnectRaw) -> None:
    nobody = connect_raw()
    nobody.member_id, nobody.generation = "nobody", 1
    assert nobody.join() == UNKNOWN_MEMBER_ID
    assert nobody.sync() == UNKNOWN_MEMBER_ID
    assert nobody.heartbeat() == UNKNOWN_MEMBER_ID
    assert nobody.leave() == UNKNOWN_MEMBER_ID


def test_requests_of_somebody_who_is_not_a_member(connect_raw: ConnectRaw) -> None:
    there, nobody = connect_raw(), connect_raw()
    there.settle_alone()
    nobody.member_id, nobody.generation = "nobody", there.generation
    assert nobody.join() == UNKNOWN_MEMBER_ID
    assert nobody.sync() == UNKNOWN_MEMBER_ID
    assert nobody.heartbeat() == UNKNOWN_MEMBER_ID
    assert nobody.leave() == UNKNOWN_MEMBER_ID
    assert goes_on(there)


def test_a_new_member_is_given_an_id_first(connect_raw: ConnectRaw) -> None:
    """From version 4 on. A pending member that never returns delays the group by at most its session timeout."""
    gone, there = connect_raw(session_timeout=1_000), connect_raw()
    assert gone.receive_join(gone.send_join()) == MEMBER_ID_REQUIRED
    assert gone.member_id
    gone.vanish()
    there.settle_alone()
    assert there.members == (there.member_id,)
    assert goes_on(there)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_an_old_client_joins_at_once(connect_raw: ConnectRaw, version: int) -> None:
    old = connect_raw()
    assert old.receive_join(old.send_join(version), version) == OK
    assert old.members == (old.member_id,)
    assert old.sync({old.member_id: b"everything"}) == OK


@pytest.mark.parametrize("generation", [-1, 0, 99])
def test_another_generation(connect_raw: ConnectRaw, generation: int) -> None:
    there = connect_raw()
    there.settle_alone()
    assert there.heartbeat(generation_id=generation) == ILLEGAL_GENERATION
    assert there.sync(generation_id=generation) == ILLEGAL_GENERATION
    assert goes_on(there)


# ── protocols ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "strange",
    [
        {"protocols": [{"name": "other", "metadata": b""}]},
        {"protocols": []},
        {"protocol_type": "connect"},
        {"protocol_type": ""},
    ],
    ids=["another assignor", "none", "another type", "no type"],
)
def test_protocols_that_do_not_fit_the_group(connect_raw: ConnectRaw, strange: dict[str, Any]) -> None:
    there, other = connect_raw(), connect_raw()
    there.settle_alone()
    assert other.join(**strange) == INCONSISTENT_GROUP_PROTOCOL
    assert goes_on(there)


@pytest.mark.parametrize("missing", [{"protocols": []}, {"protocol_type": ""}], ids=["no protocols", "no type"])
def test_a_first_member_without_protocols(connect_raw: ConnectRaw, missing: dict[str, Any]) -> None:
    assert connect_raw().join(**missing) == INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(
    "strange",
    [{"protocol_type": "connect"}, {"protocol_name": "other"}, {"protocol_type": None}, {"protocol_name": None}],
    ids=["another type", "another name", "no type", "no name"],
)
def test_a_sync_for_another_protocol(connect_raw: ConnectRaw, strange: dict[str, Any]) -> None:
    there = connect_raw()
    assert there.join() == OK
    assert there.sync({there.member_id: b""}, **strange) == INCONSISTENT_GROUP_PROTOCOL
    assert there.sync({there.member_id: b""}) == OK
    assert goes_on(there)


def test_members_agree_on_what_all_of_them_know(connect_raw: ConnectRaw) -> None:
    """The first member prefers `sticky`, but the second does not support it."""
    one = connect_raw(protocols=[{"name": name, "metadata": subscription(["t"])} for name in ("sticky", "range")])
    two = connect_raw(protocols=[{"name": name, "metadata": subscription(["t"])} for name in ("roundrobin", "range")])
    one.settle_alone()
    assert two.receive_join(two.send_join()) == MEMBER_ID_REQUIRED
    waiting = two.send_join()
    assert one.heartbeat() == REBALANCE_IN_PROGRESS
    assert one.join() == OK
    assert two.receive_join(waiting) == OK
    assert one.protocol == two.protocol == "range"
    assert one.sync({one.member_id: b"1", two.member_id: b"2"}) == OK
    assert two.sync() == OK


# ── in the middle of a rebalance ──────────────────────────────────────────────────────────────────────────────────


def test_requests_while_the_group_waits_for_joins(connect_raw: ConnectRaw, make_topic: MakeTopic) -> None:
    topic = make_topic()
    there, other = connect_raw(), connect_raw()
    there.settle_alone()
    assert other.receive_join(other.send_join()) == MEMBER_ID_REQUIRED
    waiting = other.send_join()
    assert there.heartbeat() == REBALANCE_IN_PROGRESS
    assert there.sync() == REBALANCE_IN_PROGRESS
    assert there.commit({TP(topic, 0): 5}) == [OK]  # it may still commit what it has read
    assert there.join() == OK
    assert other.receive_join(waiting) == OK


def test_requests_while_the_group_waits_for_its_leader(connect_raw: ConnectRaw, make_topic: MakeTopic) -> None:
    topic = make_topic()
    there = connect_raw()
    assert there.join() == OK
    assert there.heartbeat() == OK
    assert there.commit({TP(topic, 0): 5}) == [REBALANCE_IN_PROGRESS]
    before = there.generation
    assert there.join() == OK  # as if the response was lost
    assert there.generation == before
    assert there.sync({there.member_id: b""}) == OK
    assert there.commit({TP(topic, 0): 5}) == [OK]


def test_a_leader_that_never_assigns(connect_raw: ConnectRaw) -> None:
    """It is removed after the rebalance timeout, and the next member leads."""
    silent = connect_raw(rebalance_timeout=1_000, session_timeout=30_000)
    other = connect_raw(rebalance_timeout=1_000, session_timeout=30_000)
    assert silent.join() == OK
    assert other.receive_join(other.send_join()) == MEMBER_ID_REQUIRED
    waiting = other.send_join()
    assert silent.heartbeat() == REBALANCE_IN_PROGRESS
    assert silent.join() == OK
    assert other.receive_join(waiting) == OK
    assert silent.leads
    assert other.sync() == REBALANCE_IN_PROGRESS  # it waited for an assignment
    assert silent.heartbeat() == UNKNOWN_MEMBER_ID
    other.settle_alone()
    assert other.members == (other.member_id,)


def test_a_group_that_is_too_large_for_its_log(start_own_broker: StartBroker, group: str) -> None:
    """Nobody gets an assignment that could not be written; the group continues with a smaller one."""
    broker = start_own_broker(**GROUP_CONFIG, **{"offsets.topic.segment.bytes": str(1 << 20)})
    workers = {"protocol_type": "connect", "protocols": [{"name": "sessioned", "metadata": b""}]}
    with Wire(broker.bootstrap_servers) as wire:
        find(wire, group)
    crowd = Crowd(broker.bootstrap_servers, group, 3, **workers)
    crowd.assemble()
    (leader,) = (member for member in crowd.members if member.leads)
    assert leader.sync({member.member_id: b"much" * 100_000 for member in crowd.members}) == UNKNOWN_SERVER_ERROR
    crowd.rally()
    assert {member.heartbeat() for member in crowd.members} == {OK}
    crowd.vanish()


# ── leaving ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_several_members_are_removed_at_once(connect_raw: ConnectRaw) -> None:
    there = connect_raw(instance_id="static")
    there.settle_alone()
    leaving = [
        {"member_id": "nobody", "group_instance_id": None},
        {"member_id": "", "group_instance_id": "static"},
        {"member_id": "", "group_instance_id": "unknown"},
        {"member_id": "wrong", "group_instance_id": "static"},
    ]
    answer = there.call("leave_group", 5, {"members": leaving})
    codes = [int(member.error_code) for member in answer.members]
    assert int(answer.error_code) == OK
    assert codes == [UNKNOWN_MEMBER_ID, OK, UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER_ID]
    assert there.heartbeat() == UNKNOWN_MEMBER_ID


def test_a_member_leaves_twice(connect_raw: ConnectRaw) -> None:
    there = connect_raw()
    there.settle_alone()
    assert there.leave() == OK
    assert there.leave() == UNKNOWN_MEMBER_ID
    assert int(there.call("leave_group", 0, there.identity).error_code) == UNKNOWN_MEMBER_ID
    there.member_id = ""
    there.settle_alone()
    assert goes_on(there)


# ── static members ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_static_member_that_was_replaced(connect_raw: ConnectRaw, make_topic: MakeTopic) -> None:
    topic = make_topic()
    old, new = connect_raw(instance_id="same"), connect_raw(instance_id="same")
    old.settle_alone()
    assert new.join() == OK
    assert new.generation == old.generation
    assert new.member_id != old.member_id
    assert old.heartbeat() == FENCED_INSTANCE_ID
    assert old.sync() == FENCED_INSTANCE_ID
    assert old.commit({TP(topic, 0): 5}) == [FENCED_INSTANCE_ID]
    assert old.join() == FENCED_INSTANCE_ID
    assert old.leave() == FENCED_INSTANCE_ID
    assert new.sync() == OK
    assert goes_on(new)


def test_an_instance_id_that_nobody_has(connect_raw: ConnectRaw) -> None:
    there = connect_raw()
    there.settle_alone()
    assert there.heartbeat(group_instance_id="unknown") == UNKNOWN_MEMBER_ID
    assert there.sync(group_instance_id="unknown") == UNKNOWN_MEMBER_ID
    assert goes_on(there)
