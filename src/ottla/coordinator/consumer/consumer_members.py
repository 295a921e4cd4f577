"""Members of the consumer protocol (KIP-848) in a consumer group: they join, send heartbeats and leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator import history
from ottla.coordinator.consumer.member import Member, Partitions, to_partitions, to_topic_partitions
from ottla.coordinator.consumer.messages import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerHeartbeatRequest,
    ConsumerHeartbeatResponse,
)
from ottla.coordinator.effects import Effects

if TYPE_CHECKING:
    from ottla.coordinator.consumer.group import ConsumerGroup


class ConsumerMembers:
    """Translates ConsumerGroupHeartbeat into changes of a group's members. Errors are raised."""

    def __init__(self, group: ConsumerGroup) -> None:
        self._group = group
        self._logged = group.logged
        self._sessions = group.timers.sessions

    def heartbeat(self, request: ConsumerHeartbeatRequest, fx: Effects) -> ConsumerHeartbeatResponse:
        """Let a member join, or note that it is alive and what it owns."""
        group, logged = self._group, self._logged
        group.check_room(request.member_id)
        member_id = request.member_id or group.shard.new_id()
        owned = None if request.topic_partitions is None else to_partitions(request.topic_partitions)
        before, replaces = self._find(request, member_id, owned, fx)
        after = before.changed_by(request)
        times = group.shard.times_of(group.group_id)
        if after is before and before.is_reconciled_to(logged.assignment_epoch) and group.has_target():
            group.history.finish_if_reconciled(before, logged.assignment_epoch, logged.target, fx)
            self._sessions.touch(member_id, times.session_timeout, fx)
            return ConsumerHeartbeatResponse(0, None, member_id, before.member_epoch, times.heartbeat_interval)
        member = group.change_member(before, after, replaces, owned, fx)
        if before.classic is not None:
            group.timers.forget(member_id, fx)  # Those of the protocol that it used until now.
        self._sessions.touch(member_id, times.session_timeout, fx)
        tells_all = request.member_epoch == JOIN_EPOCH or request.is_full or member.assigned != before.assigned
        assignment = to_topic_partitions(member.assigned) if tells_all else None
        return ConsumerHeartbeatResponse(0, None, member_id, member.member_epoch, times.heartbeat_interval, assignment)

    def _find(
        self, request: ConsumerHeartbeatRequest, member_id: str, owned: Partitions | None, fx: Effects
    ) -> tuple[Member, Member | None]:
        """Return the member, known or new, and the static member that it replaces."""
        is_joining = request.member_epoch == JOIN_EPOCH
        if is_joining and request.instance_id is not None:
            return self._group.find_static(request.instance_id, member_id, fx, is_classic=False)
        if is_joining:
            member = self._logged.members.get(member_id) or Member(member_id)
        else:
            member = self._logged.member_of(request.instance_id, member_id)
        member.check_heartbeat_epoch(request.member_epoch, owned)
        return member, None

    def leave(self, request: ConsumerHeartbeatRequest, fx: Effects) -> ConsumerHeartbeatResponse:
        """Remove a member, or let a static one leave for a while."""
        group = self._group
        member = self._logged.member_of(request.instance_id, request.member_id)
        if request.instance_id is not None and request.member_epoch == LEAVE_STATIC_EPOCH:
            group.writer.current(member._replace(member_epoch=LEAVE_STATIC_EPOCH, pending_revocation={}), fx)
        else:
            group.fence([member], history.MEMBER_LEFT, fx)
        return ConsumerHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
