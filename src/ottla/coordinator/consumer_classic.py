"""Members of the classic protocol in a consumer group, as there are while a group migrates from one to the other.

They join, sync and heartbeat as they are used to, and are answered at once: the coordinator assigns, the generation is
the member's epoch, nobody leads. A heartbeat tells them to join again when there is something new for them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from uuid import UUID

from ottla import errors
from ottla.assignors import Assignment, Subscription
from ottla.assignors.embedded import (
    PROTOCOL_TYPE,
    MalformedProtocol,
    decode_subscription,
    encode_assignment,
    version_of,
)
from ottla.coordinator import history
from ottla.coordinator import messages as m
from ottla.coordinator import records as r
from ottla.coordinator.consumer_member import Member, MemberState, sorted_names
from ottla.coordinator.consumer_membership import ConsumerMembership, merge
from ottla.coordinator.consumer_migration import can_downgrade, downgrade
from ottla.coordinator.consumer_rebalance import JOIN, SYNC, Change
from ottla.coordinator.consumer_subscribe import RegexChange
from ottla.coordinator.effects import Effects


class ClassicMembers(ConsumerMembership):
    """A consumer group that members of the classic protocol can be in."""

    # ── join ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def join(self, request: m.JoinRequest, fx: Effects) -> m.JoinResponse:
        """JoinGroup, answered at once."""
        draft = Effects(now=fx.now)
        try:
            response = self._join(request, draft)
        except errors.KafkaError as error:
            return m.JoinResponse(error_code=error.code, member_id=request.member_id)
        merge(fx, draft)
        return response

    def _join(self, request: m.JoinRequest, fx: Effects) -> m.JoinResponse:
        is_new = request.member_id == m.UNKNOWN_MEMBER_ID
        member_id = self.shard.new_id() if is_new else request.member_id
        self.check_room(member_id)
        self._check_protocols(request)
        if is_new and request.group_instance_id is None and request.requires_known_member_id:
            return m.JoinResponse(error_code=errors.MemberIdRequired.code, member_id=member_id)
        subscription = _subscription(request.protocols[0].metadata)
        present = self.static_member(request.group_instance_id)
        if is_new and present is not None and present.classic is None and can_downgrade(self, [present], joining=1):
            return self._downgrade_replacing(present, member_id, request, subscription, fx)
        change = self._join_change(request, member_id, subscription, fx)
        if change.after != change.before:
            self.write_member(change.after, fx)
        regex_change = self.update_regex(change.before, change.after, fx)
        names_changed = change.after.subscribed_topic_names != change.before.subscribed_topic_names
        is_changed = names_changed or regex_change is not RegexChange.NONE
        epoch = self.group_epoch
        if is_changed or self.must_check_topics:
            epoch = self.check_topics(change, self.why(change) if is_changed else None, fx)
        member = self._settle_classic(change, epoch, subscription, is_changed, fx)
        self.asked_to_join.discard(member_id)
        fx.cancel_timer((JOIN, self.group_id, member_id))
        return m.JoinResponse(
            generation_id=member.member_epoch,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=request.protocols[0].name,
            member_id=member_id,
        )

    def _downgrade_replacing(
        self, present: Member, member_id: str, request: m.JoinRequest, subscription: Subscription, fx: Effects
    ) -> m.JoinResponse:
        """The last member of the consumer protocol comes back with the classic one: the group is a classic one now."""
        member = _joined(present._replace(member_id=member_id), request, subscription)
        staying = [member if other is present else other for other in self.members.values()]
        # No member of the classic protocol has been told that it leads, which takes a rebalance.
        trigger = r.Trigger(history.STATIC_MEMBER_REPLACED, fx.now, member.who, request.reason)
        downgrade(self, staying, trigger, fx)
        return m.JoinResponse(
            generation_id=self.group_epoch,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=request.protocols[0].name,
            member_id=member_id,
        )

    def _settle_classic(
        self, change: Change, epoch: int, subscription: Subscription, is_changed: bool, fx: Effects
    ) -> Member:
        member = self.settle(change, epoch, fx, owned=self._by_id(subscription.owned_partitions), changed=is_changed)
        self.touch(member.member_id, self.session_timeout_of(member), fx)
        fx.set_timer((SYNC, self.group_id, member.member_id), fx.now + member.rebalance_timeout)
        return member

    def _check_protocols(self, request: m.JoinRequest) -> None:
        names = {protocol.name for protocol in request.protocols}
        known = any(self.classic_protocols[name] == self.classic_members for name in names)
        if request.protocol_type != PROTOCOL_TYPE or not names or not known:
            raise errors.InconsistentGroupProtocol(f"Member {request.member_id}'s protocols are not supported.")

    def _join_change(self, request: m.JoinRequest, member_id: str, subscription: Subscription, fx: Effects) -> Change:
        replaces = None
        if request.group_instance_id is None:
            before = self.members.get(member_id) or Member(member_id)
        elif request.member_id == m.UNKNOWN_MEMBER_ID:
            before, replaces = self.find_static(request.group_instance_id, member_id, fx, is_classic=True)
        else:
            before = self.known_static(request.group_instance_id, member_id)
        return Change(before, _joined(before, request, subscription), replaces)

    def _by_id(self, partitions: Mapping[str, Collection[int]]) -> dict[UUID, frozenset[int]]:
        topics = self.shard.topics()
        return {
            topics[name].topic_id: frozenset(numbers)
            for name, numbers in partitions.items()
            if name in topics and numbers
        }

    # ── sync ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def sync(self, request: m.SyncRequest, fx: Effects) -> m.SyncResponse:
        """SyncGroup: gives the member what it has."""
        try:
            member = self._classic_member(request.member_id, request.group_instance_id, request.generation_id)
            _check_sync_protocol(member, request)
        except errors.KafkaError as error:
            return m.SyncResponse(error_code=error.code)
        if self.group_epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._ask_to_join(member, fx)
            return m.SyncResponse(error_code=errors.RebalanceInProgress.code)
        fx.cancel_timer((SYNC, self.group_id, member.member_id))
        self.touch(member.member_id, self.session_timeout_of(member), fx)
        return m.SyncResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=self.embedded_assignment(member),
        )

    def embedded_assignment(self, member: Member) -> bytes:
        """Return what a member has, in the consumer's own format and the version that the member speaks."""
        assert member.classic is not None
        names = {info.topic_id: name for name, info in self.shard.topics().items()}
        partitions = {
            names[topic_id]: sorted(numbers) for topic_id, numbers in member.assigned.items() if topic_id in names
        }
        version = version_of(member.classic.supported_protocols[0].metadata)
        return encode_assignment(Assignment(partitions), min(version, 3))

    # ── heartbeat ─────────────────────────────────────────────────────────────────────────────────────────────────

    def heartbeat(self, request: m.HeartbeatRequest, fx: Effects) -> m.HeartbeatResponse:
        """Heartbeat: the member learns whether it should join again."""
        try:
            member = self._classic_member(request.member_id, request.group_instance_id, request.generation_id)
        except errors.KafkaError as error:
            return m.HeartbeatResponse(error_code=error.code)
        self.touch(member.member_id, self.session_timeout_of(member), fx)
        if not self._has_news(member):
            return m.HeartbeatResponse()
        self._ask_to_join(member, fx)
        return m.HeartbeatResponse(error_code=errors.RebalanceInProgress.code)

    def _has_news(self, member: Member) -> bool:
        if member.member_epoch < self.group_epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
            return True
        return member.state is MemberState.UNRELEASED_PARTITIONS and not self._waits_for_others(member)

    def _waits_for_others(self, member: Member) -> bool:
        """Whether a partition of its target is still another's."""
        for topic_id, numbers in self.target.get(member.member_id, {}).items():
            assigned: frozenset[int] = member.assigned.get(topic_id, frozenset())
            if any(number not in assigned and self.owner_of(topic_id, number) is not None for number in numbers):
                return True
        return False

    def _ask_to_join(self, member: Member, fx: Effects) -> None:
        """Give the member its rebalance timeout to join again, from the first time that it is told."""
        if member.member_id not in self.asked_to_join:
            self.asked_to_join.add(member.member_id)
            fx.set_timer((JOIN, self.group_id, member.member_id), fx.now + member.rebalance_timeout)

    def _classic_member(self, member_id: str, instance_id: str | None, generation: int) -> Member:
        member = self.member(member_id) if instance_id is None else self.known_static(instance_id, member_id)
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
        """LeaveGroup: members of either protocol go, by themselves or because an administrator says so."""
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
        self.fence(list(leaving.values()), history.MEMBER_LEFT, fx, reasons)
        return m.LeaveResponse(members=tuple(answers))

    def _leaving(self, one: m.LeavingMember) -> Member:
        if one.group_instance_id is None:
            return self.member(one.member_id)
        if one.member_id != m.UNKNOWN_MEMBER_ID:
            return self.known_static(one.group_instance_id, one.member_id)
        member = self.static_member(one.group_instance_id)
        if member is None:
            raise errors.UnknownMemberId(f"Instance id {one.group_instance_id} is unknown.")
        return member


def _joined(member: Member, request: m.JoinRequest, subscription: Subscription) -> Member:
    """Return the member as it is once it has joined."""
    protocols = tuple(r.ClassicProtocol(protocol.name, protocol.metadata) for protocol in request.protocols)
    return member._replace(
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
    """Return what a member subscribes to; all its protocols say the same."""
    try:
        return decode_subscription(metadata)
    except MalformedProtocol as error:
        raise errors.UnknownServerError(f"The subscription cannot be read: {error}") from None


def _check_sync_protocol(member: Member, request: m.SyncRequest) -> None:
    assert member.classic is not None
    name = member.classic.supported_protocols[0].name
    is_other_type = request.protocol_type not in (None, PROTOCOL_TYPE)
    if is_other_type or request.protocol_name not in (None, name):
        raise errors.InconsistentGroupProtocol(
            f"Member {member.member_id} joined with protocol {name} of type {PROTOCOL_TYPE}."
        )
