"""What the log says about a classic group, and the records that are made for it."""

from __future__ import annotations

from group_parts import member

from ottla.coordinator import records as r
from ottla.coordinator.classic.logged import Logged, created_record, empty_record, generation_record
from ottla.coordinator.classic.states import Status


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
