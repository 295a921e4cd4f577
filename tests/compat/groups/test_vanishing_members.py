"""Very many members whose connections are cut at the same moment."""

from __future__ import annotations

from ..conftest import unique_name
from ..waiting import until
from ..wire import Wire
from .raw import MEMBER_ID_REQUIRED, OK, REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID, Crowd, RawMember, find

MEMBERS = 100
SESSION_MS = 2_000
#: Of the member that stays: it must not be given up while a slow machine deals with the others.
PATIENT = {"session_timeout": 60_000, "rebalance_timeout": 60_000}


def state(wire: Wire, group: str) -> tuple[str, int]:
    (found,) = wire.call("describe_groups", 5, {"groups": [group]}).groups
    return found.group_state, len(found.members)


def found_group(bootstrap_servers: str) -> str:
    name = unique_name("crowd")
    with Wire(bootstrap_servers) as wire:
        find(wire, name)
    return name


def test_all_but_one_vanish(bootstrap_servers: str) -> None:
    """The remaining member owns everything when the other sessions have expired."""
    group = found_group(bootstrap_servers)
    crowd = Crowd(bootstrap_servers, group, MEMBERS, session_timeout=SESSION_MS, rebalance_timeout=30_000)
    crowd.rally()
    survivor = crowd.members.pop()
    assert survivor.heartbeat() == OK
    crowd.vanish()
    until(lambda: survivor.heartbeat() == REBALANCE_IN_PROGRESS, "the group rebalances")
    assert survivor.join() == OK
    assert survivor.leads
    assert survivor.members == (survivor.member_id,)
    assert survivor.sync({survivor.member_id: b"everything"}) == OK
    assert state(survivor.wire, group) == ("Stable", 1)
    survivor.vanish()


def test_all_vanish(bootstrap_servers: str) -> None:
    """The group is empty afterwards, and can be joined."""
    group = found_group(bootstrap_servers)
    crowd = Crowd(bootstrap_servers, group, MEMBERS, session_timeout=SESSION_MS)
    crowd.rally()
    crowd.vanish()
    with RawMember(bootstrap_servers, group) as newcomer:
        until(lambda: state(newcomer.wire, group) == ("Empty", 0), "the group is empty")
        newcomer.settle_alone()
        assert newcomer.heartbeat() == OK


def test_all_vanish_while_they_wait_to_join(bootstrap_servers: str) -> None:
    """The dead members do not respond; the live one continues when they have expired."""
    group = found_group(bootstrap_servers)
    with RawMember(bootstrap_servers, group, **PATIENT) as there:
        there.settle_alone()
        crowd = Crowd(bootstrap_servers, group, MEMBERS, session_timeout=SESSION_MS, rebalance_timeout=2_000)
        crowd.ask()
        until(lambda: there.heartbeat() == REBALANCE_IN_PROGRESS, "the group rebalances")
        crowd.vanish()
        assert there.join() == OK
        until(lambda: alone_again(there), "the group belongs to the one that is there", 40)


def alone_again(member: RawMember) -> bool:
    """Act once like a member; return whether it is alone."""
    if member.leads and member.members:
        member.sync({member.member_id: b"everything"})
    code = member.heartbeat()
    if code == REBALANCE_IN_PROGRESS:
        assert member.join() == OK
    assert code in (OK, REBALANCE_IN_PROGRESS)
    return code == OK and state(member.wire, member.group) == ("Stable", 1)


def test_ids_that_nobody_comes_back_with(bootstrap_servers: str) -> None:
    """Pending members that vanished delay a rebalance by at most one session timeout."""
    group = found_group(bootstrap_servers)
    with RawMember(bootstrap_servers, group, **PATIENT) as there, RawMember(bootstrap_servers, group) as other:
        there.settle_alone()
        crowd = Crowd(bootstrap_servers, group, MEMBERS, session_timeout=SESSION_MS)
        for member in crowd.members:
            assert member.receive_join(member.send_join()) == MEMBER_ID_REQUIRED
        crowd.vanish()
        assert there.heartbeat() == OK
        assert other.receive_join(other.send_join()) == MEMBER_ID_REQUIRED
        waiting = other.send_join()
        until(lambda: there.heartbeat() == REBALANCE_IN_PROGRESS, "the group rebalances")
        assert there.join() == OK
        assert other.receive_join(waiting) == OK
        assert sorted(there.members) == sorted([there.member_id, other.member_id])
        crowd.members[0].wire = there.wire
        assert crowd.members[0].heartbeat(generation_id=there.generation) == UNKNOWN_MEMBER_ID
