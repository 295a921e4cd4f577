"""Members of the classic protocol in a consumer group, while a group migrates from one protocol to the other.

They join, sync and send heartbeats as usual, and are answered at once: the coordinator assigns, the generation is the
member's epoch, and there is no leader. A heartbeat tells them to join again when there is something new for them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from ottla import errors
from ottla.assignors import Subscription
from ottla.assignors.embedded import PROTOCOL_TYPE, MalformedProtocol, decode_subscription
from ottla.coordinator import history
from ottla.coordinator import messages as m
from ottla.coordinator import records as r
from ottla.coordinator.consumer.member import Member, MemberState, sorted_names
from ottla.coordinator.consumer.migration import can_downgrade, encoded_assignment
from ottla.coordinator.effects import Effects
from ottla.coordinator.group import TopicInfo

if TYPE_CHECKING:
    from ottla.coordinator.consumer.group import ConsumerGroup


class ClassicMembers:
    """Translates requests of the classic protocol into changes of a consumer group's members."""

    def __init__(self, group: ConsumerGroup) -> None:
        self._group = group
        self._logged = group.logged
        self._timers = group.timers

    # ── join ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def join(self, request: m.JoinRequest, fx: Effects) -> m.JoinResponse:
        draft = Effects(now=fx.now)
        try:
            response = self._join(request, draft)
        except errors.KafkaError as error:
            return m.JoinResponse(error_code=error.code, member_id=request.member_id)
        fx.records.extend(draft.records)
        fx.timers.update(draft.timers)
        return response

    def _join(self, request: m.JoinRequest, fx: Effects) -> m.JoinResponse:
        group, logged = self._group, self._logged
        is_new = request.member_id == m.UNKNOWN_MEMBER_ID
        member_id = group.shard.new_id() if is_new else request.member_id
        group.check_room(member_id)
        self._check_protocols(request)
        if is_new and request.group_instance_id is None and request.requires_known_member_id:
            return m.JoinResponse(error_code=errors.MemberIdRequired.code, member_id=member_id)
        subscription = _subscription(request.protocols[0].metadata)
        present = logged.static_member(request.group_instance_id)
        returns = is_new and present is not None and present.classic is None
        if present is not None and returns and can_downgrade(logged, group.shard.config, [present], joining=1):
            self._downgrade_replacing(present, _joined(present, member_id, request, subscription), request, fx)
            return _joined_response(request, member_id, group.group_epoch)
        if is_new and request.group_instance_id is not None:
            before, replaces = group.find_static(request.group_instance_id, member_id, fx, is_classic=True)
        elif request.group_instance_id is not None:
            before, replaces = logged.member_of(request.group_instance_id, member_id), None
        else:
            before, replaces = logged.members.get(member_id) or Member(member_id), None
        owned = _by_id(subscription.owned_partitions, group.shard.topics())
        after = _joined(before, member_id, request, subscription)
        member = group.change_member(before, after, replaces, owned, fx)
        self._timers.joined(member, fx)
        return _joined_response(request, member_id, member.member_epoch)

    def _downgrade_replacing(self, present: Member, member: Member, request: m.JoinRequest, fx: Effects) -> None:
        """The last member of the consumer protocol returns with the classic one: make a classic group."""
        staying = [member if other is present else other for other in self._logged.members.values()]
        # It takes a rebalance: no member has been told that it is the leader.
        trigger = r.Trigger(history.STATIC_MEMBER_REPLACED, fx.now, member.who, request.reason)
        self._group.downgrade(staying, trigger, fx)

    def _check_protocols(self, request: m.JoinRequest) -> None:
        subscriptions = self._logged.subscriptions
        names = {protocol.name for protocol in request.protocols}
        known = any(subscriptions.classic_protocols[name] == subscriptions.classic_members for name in names)
        if request.protocol_type != PROTOCOL_TYPE or not names or not known:
            raise errors.InconsistentGroupProtocol(f"Member {request.member_id}'s protocols are not supported.")

    # ── sync ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def sync(self, request: m.SyncRequest, fx: Effects) -> m.SyncResponse:
        """Give a member its assignment."""
        try:
            member = self._member(request.member_id, request.group_instance_id, request.generation_id)
            _check_sync_protocol(member, request)
        except errors.KafkaError as error:
            return m.SyncResponse(error_code=error.code)
        if self._logged.group_epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._timers.told_to_join(member, fx)
            return m.SyncResponse(error_code=errors.RebalanceInProgress.code)
        self._timers.synced(member, fx)
        assert member.classic is not None
        return m.SyncResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=encoded_assignment(
                member.assigned, member.classic.supported_protocols[0].metadata, self._group.shard.topics()
            ),
        )

    # ── heartbeat ─────────────────────────────────────────────────────────────────────────────────────────────────

    def heartbeat(self, request: m.HeartbeatRequest, fx: Effects) -> m.HeartbeatResponse:
        """Tell a member whether it must join again."""
        try:
            member = self._member(request.member_id, request.group_instance_id, request.generation_id)
        except errors.KafkaError as error:
            return m.HeartbeatResponse(error_code=error.code)
        self._timers.touch(member, fx)
        if not self._has_news(member):
            return m.HeartbeatResponse()
        self._timers.told_to_join(member, fx)
        return m.HeartbeatResponse(error_code=errors.RebalanceInProgress.code)

    def _has_news(self, member: Member) -> bool:
        if member.member_epoch < self._logged.group_epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
            return True
        return member.state is MemberState.UNRELEASED_PARTITIONS and not self._waits_for_others(member)

    def _waits_for_others(self, member: Member) -> bool:
        """Return whether other members still own partitions of its target."""
        for topic_id, numbers in self._logged.target.get(member.member_id, {}).items():
            missing = numbers - member.assigned.get(topic_id, frozenset())
            if not missing.isdisjoint(self._logged.owners_of(topic_id)):
                return True
        return False

    def _member(self, member_id: str, instance_id: str | None, generation: int) -> Member:
        member = self._logged.member_of(instance_id, member_id)
        if member.classic is None:
            raise errors.UnknownMemberId(f"Member {member_id} does not use the classic protocol.")
        if member.member_epoch != generation:
            raise errors.IllegalGeneration(
                f"The request generation id {generation} is not equal to the member epoch {member.member_epoch} "
                f"of member {member_id}."
            )
        return member

    # ── leave ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def leave(self, request: m.LeaveRequest, fx: Effects) -> m.LeaveResponse:
        """Remove members of either protocol, at their own request or at an administrator's."""
        leaving: dict[str, Member] = {}
        reasons: dict[str, str] = {}
        answers = []
        for one in request.members:
            try:
                member = self._leaving(one)
            except errors.KafkaError as error:
                answers.append(m.LeftMember(one.member_id, one.group_instance_id, error.code))
                continue
            leaving[member.member_id] = member
            reasons[member.member_id] = one.reason
            answers.append(m.LeftMember(one.member_id, one.group_instance_id))
        self._group.fence(list(leaving.values()), history.MEMBER_LEFT, fx, reasons)
        return m.LeaveResponse(members=tuple(answers))

    def _leaving(self, one: m.LeavingMember) -> Member:
        member = self._logged.static_member(one.group_instance_id)
        if member is not None and one.member_id == m.UNKNOWN_MEMBER_ID:
            return member
        return self._logged.member_of(one.group_instance_id, one.member_id)


def _joined_response(request: m.JoinRequest, member_id: str, epoch: int) -> m.JoinResponse:
    return m.JoinResponse(
        generation_id=epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=request.protocols[0].name,
        member_id=member_id,
    )


def _joined(member: Member, member_id: str, request: m.JoinRequest, subscription: Subscription) -> Member:
    """Return a member after its join."""
    protocols = tuple(r.ClassicProtocol(protocol.name, protocol.metadata) for protocol in request.protocols)
    return member._replace(
        member_id=member_id,
        instance_id=member.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout=request.rebalance_timeout,
        subscribed_topic_names=sorted_names(subscription.topics),
        subscribed_topic_regex="",
        client_id=request.client_id,
        client_host=request.client_host,
        classic=r.ClassicMemberMetadata(request.session_timeout, protocols),
    )


def _subscription(metadata: bytes) -> Subscription:
    """Return the subscription of a member, which is the same in all its protocols."""
    try:
        return decode_subscription(metadata)
    except MalformedProtocol as error:
        raise errors.UnknownServerError(f"The subscription cannot be read: {error}") from None


def _by_id(partitions: Mapping[str, Collection[int]], topics: Mapping[str, TopicInfo]) -> dict[UUID, frozenset[int]]:
    return {
        topics[name].topic_id: frozenset(numbers) for name, numbers in partitions.items() if name in topics and numbers
    }


def _check_sync_protocol(member: Member, request: m.SyncRequest) -> None:
    assert member.classic is not None
    name = member.classic.supported_protocols[0].name
    is_other_type = request.protocol_type not in (None, PROTOCOL_TYPE)
    if is_other_type or request.protocol_name not in (None, name):
        raise errors.InconsistentGroupProtocol(
            f"Member {member.member_id} joined with protocol {name} of type {PROTOCOL_TYPE}."
        )
