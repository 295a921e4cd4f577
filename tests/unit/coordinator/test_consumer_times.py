"""Session timeout and heartbeat interval of a single group apply from a member's next heartbeat on."""

from __future__ import annotations

from ottla.coordinator.config import Times
from unit.coordinator.consumer_context import SESSION, ConsumerContext, group_of
from unit.coordinator.group_context import GROUP


def members(context: ConsumerContext) -> set[str]:
    return {member.member_id for member in context.described().members}


def test_a_shorter_session_ends_sooner() -> None:
    context = group_of("a", "b")
    context.times[GROUP] = Times(session_timeout=10_000, heartbeat_interval=3_000)
    assert context.beat("a", 2).response.heartbeat_interval == 3_000
    context.sleep(10_000)
    assert members(context) == {"b"}  # Which has not been heard of since, so its session is the old one.
    context.sleep(SESSION - 10_000)
    assert members(context) == set()


def test_a_longer_session_ends_later() -> None:
    context = group_of("a")
    context.times[GROUP] = Times(session_timeout=2 * SESSION, heartbeat_interval=5_000)
    context.beat("a", 1)
    context.sleep(SESSION)
    assert members(context) == {"a"}
    context.sleep(SESSION)
    assert members(context) == set()


def test_other_groups_keep_the_times_of_the_broker() -> None:
    context = group_of("a")
    context.times["another"] = Times(session_timeout=10_000, heartbeat_interval=3_000)
    assert context.beat("a", 1).response.heartbeat_interval == 5_000
    context.sleep(SESSION - 1)
    assert members(context) == {"a"}
