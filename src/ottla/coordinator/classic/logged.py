"""What the log says about a classic group, and the records that are written to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.coordinator import records as r
from ottla.coordinator.classic.members import Member
from ottla.coordinator.classic.states import Status
from ottla.types import Millis


class Logged:
    """The last GroupMetadata record of a group. Only `replay` changes it."""

    __slots__ = ("_value",)

    def __init__(self) -> None:
        self._value: r.GroupMetadataValue | None = None

    def replay(self, value: r.GroupMetadataValue) -> None:
        self._value = value

    @property
    def assignments(self) -> dict[str, bytes]:
        """The assignment of each member."""
        members = () if self._value is None else self._value.members
        return {member.member_id: member.assignment for member in members}


def created_record(*, now: Millis) -> r.GroupMetadataValue:
    """Return the first record of a group."""
    return r.GroupMetadataValue("", 0, None, None, now, ())


def empty_record(status: Status, generation: int, *, now: Millis) -> r.GroupMetadataValue:
    """Return the record of a group whose last member has gone."""
    return r.GroupMetadataValue(status.protocol_type or "", generation, None, None, now, ())


def generation_record(
    status: Status, members: Iterable[Member], leader: str | None, assignments: Mapping[str, bytes]
) -> r.GroupMetadataValue:
    """Return the record of a generation with its assignments."""
    protocol = status.protocol
    assert protocol is not None
    return r.GroupMetadataValue(
        protocol_type=status.protocol_type or "",
        generation=status.generation,
        protocol=protocol,
        leader=leader,
        current_state_timestamp=status.since,
        members=tuple(
            r.MemberMetadata(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout,
                member.session_timeout,
                member.metadata(protocol),
                assignments.get(member.member_id, b""),
            )
            for member in members
        ),
    )
