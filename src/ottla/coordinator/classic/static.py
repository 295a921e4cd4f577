"""A static member that returns without its member id, to a stable group that need not rebalance for it."""

from __future__ import annotations

from ottla.coordinator import messages as m
from ottla.coordinator import records as r
from ottla.coordinator.classic.logged import generation_record
from ottla.coordinator.classic.members import Member, Roster
from ottla.coordinator.classic.states import Status


class Return:
    """Puts a new member in an old one's place. The generation and every assignment stay.

    The group does not change before the record is replayed.
    """

    def __init__(self, status: Status, roster: Roster, old: Member, new: Member) -> None:
        self._status = status
        self._new = new
        self._led_by = roster.leader
        self._leads = roster.leader == old.member_id
        self._members = roster.swapped(old, new)
        self.assignments = {member.member_id: member.assignment for member in self._members}

    def record(self) -> r.GroupMetadataValue:
        leader = self._new.member_id if self._leads else self._led_by
        return generation_record(self._status, self._members, leader, self.assignments)

    def response(self, *, skips_assignment: bool) -> m.JoinResponse:
        """Return the response. A leader of an old version must not know that it leads: it would assign again."""
        protocol = self._status.protocol
        assert protocol is not None
        leads = self._leads and skips_assignment
        return m.JoinResponse(
            generation_id=self._status.generation,
            protocol_type=self._status.protocol_type,
            protocol_name=protocol,
            leader=self._new.member_id if leads else self._led_by or "",
            skip_assignment=leads,
            member_id=self._new.member_id,
            members=tuple(member.joined(protocol) for member in self._members) if leads else (),
        )
