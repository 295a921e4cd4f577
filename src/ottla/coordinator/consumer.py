"""Consumer groups (KIP-848): what a member may ask, and what it is answered. Error for error as Kafka 4.2 does.

A heartbeat does up to three things: it changes the member, which may raise the group epoch; it computes a new target if
the epoch was raised; and it takes the member one step towards its target. Each writes records, and replay of those
changes the state.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable

from ottla import errors
from ottla.coordinator import history
from ottla.coordinator import messages as m
from ottla.coordinator import records as r
from ottla.coordinator.consumer_classic import ClassicMembers
from ottla.coordinator.consumer_history import NEVER_REJOINED
from ottla.coordinator.consumer_member import (
    Member,
    MemberState,
    Partitions,
    sorted_names,
    to_partitions,
    to_topic_partitions,
)
from ottla.coordinator.consumer_messages import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerHeartbeatRequest,
    ConsumerHeartbeatResponse,
)
from ottla.coordinator.consumer_rebalance import JOIN, REBALANCE, SESSION, SYNC, Change
from ottla.coordinator.consumer_subscribe import REGEX, RegexChange
from ottla.coordinator.effects import Effects
from ottla.coordinator.group import CONSUMER, retention_expiry
from ottla.coordinator.offsets import IsExpired
from ottla.machine import Outcome
from ottla.types import Millis


class ConsumerGroup(ClassicMembers):
    """A group whose partitions the coordinator assigns."""

    def listed(self) -> m.ListedGroup:
        return m.ListedGroup(self.group_id, "consumer", self.state, CONSUMER)

    # ── the heartbeat; what is wrong is raised ────────────────────────────────────────────────────────────────────

    def follow(
        self, request: ConsumerHeartbeatRequest, *, now: Millis
    ) -> Outcome[r.CoordinatorRecord, ConsumerHeartbeatResponse] | None:
        """Answer a heartbeat as most are: it says nothing new, and at most takes a member that keeps all that it has
        to the epoch of the target. What `consumer_heartbeat` would do, in less time; None if it must be asked.

        A step of this kind concerns nobody else. It may be written together with those of others, which are decided
        meanwhile.
        """
        member_id, epoch = request.member_id, self.assignment_epoch
        member, session = self.members.get(member_id), self.sessions.get(member_id)
        if (
            member is None
            or session is None
            or not 0 < request.member_epoch == member.member_epoch
            or _changed_by(member, request) is not member
            or not self._has_target()
            or not self.goes_on_without_a_word(epoch)
        ):
            return None
        if request.instance_id is not None and self.static_members.get(request.instance_id) != member_id:
            return None
        times = self.shard.times_of(self.group_id)
        deadline = now + times.session_timeout
        if session.timer_at > deadline:
            return None
        records: tuple[r.CoordinatorRecord, ...] = ()
        if not member.is_reconciled_to(epoch):
            if not self._keeps_all(member):
                return None
            records = (self.current_record(member.in_epoch(epoch, MemberState.STABLE, member.assigned)),)
            self.following.add(member_id)
        session.deadline = deadline
        return Outcome(records, ConsumerHeartbeatResponse(0, None, member_id, epoch, times.heartbeat_interval))

    def _has_target(self) -> bool:
        """Whether the target is for the group as it is."""
        return 0 < self.group_epoch <= self.assignment_epoch and not (self.regexes or self.must_check_topics)

    def _keeps_all(self, member: Member) -> bool:
        """Whether the target is what the member has, and nobody has decided this before.

        The topics are those that it was computed of: if one goes, they must be checked before anything else.
        """
        is_here = member.state is MemberState.STABLE and member.member_id not in self.following
        return is_here and self.target.get(member.member_id) == member.assigned

    def consumer_heartbeat(self, request: ConsumerHeartbeatRequest, fx: Effects) -> ConsumerHeartbeatResponse:
        """A member joins, or says that it is there and what it has."""
        self.check_room(request.member_id)
        member_id = request.member_id or self.shard.new_id()
        owned = None if request.topic_partitions is None else to_partitions(request.topic_partitions)
        before, replaces = self._find(request, member_id, owned, fx)
        after = _changed_by(before, request)
        times = self.shard.times_of(self.group_id)
        if after is before and self._is_at_rest(before):
            self.finish_if_reconciled(before, self.assignment_epoch, self.target, fx)
            self.touch(member_id, times.session_timeout, fx)
            return ConsumerHeartbeatResponse(0, None, member_id, before.member_epoch, times.heartbeat_interval)
        change = Change(before, after, replaces)
        if change.after != change.before:
            self.write_member(change.after, fx)
        regex_change = self.update_regex(change.before, change.after, fx)
        names_changed = change.after.subscribed_topic_names != change.before.subscribed_topic_names
        member = self._rebalance_member(change, names_changed, regex_change, owned, fx)
        if before.classic is not None:
            self.forget_timers(member_id, fx)  # Those of the protocol that it spoke until now.
        self.touch(member_id, times.session_timeout, fx)
        tells_all = request.member_epoch == JOIN_EPOCH or request.is_full or member.assigned != before.assigned
        assignment = to_topic_partitions(member.assigned) if tells_all else None
        return ConsumerHeartbeatResponse(0, None, member_id, member.member_epoch, times.heartbeat_interval, assignment)

    def _is_at_rest(self, member: Member) -> bool:
        """Whether nothing has happened that a member that has nothing to say would have to be told of."""
        return member.is_reconciled_to(self.assignment_epoch) and self._has_target()

    def _rebalance_member(
        self, change: Change, names_changed: bool, regex_change: RegexChange, owned: Partitions | None, fx: Effects
    ) -> Member:
        """Raise the epoch, compute the target and take the member a step, each if there is a reason to."""
        trigger = None
        if not self.group_epoch or names_changed or regex_change is RegexChange.RESOLVED:
            trigger = self.why(change)
        epoch = self.group_epoch
        if trigger is not None or self.must_check_topics:
            epoch = self.check_topics(change, trigger, fx)
        return self.settle(
            change, epoch, fx, owned=owned, changed=names_changed or regex_change is not RegexChange.NONE
        )

    def _find(
        self, request: ConsumerHeartbeatRequest, member_id: str, owned: Partitions | None, fx: Effects
    ) -> tuple[Member, Member | None]:
        """Return the member, known or new, and the static member whose place it takes."""
        is_joining = request.member_epoch == JOIN_EPOCH
        if request.instance_id is None:
            member = self.members.get(member_id) if is_joining else self.member(member_id)
            member = member or Member(member_id)
        elif is_joining:
            return self.find_static(request.instance_id, member_id, fx, is_classic=False)
        else:
            member = self.known_static(request.instance_id, member_id)
        _check_epoch(member, request.member_epoch, owned)
        return member, None

    # ── leaving ───────────────────────────────────────────────────────────────────────────────────────────────────

    def consumer_leave(self, request: ConsumerHeartbeatRequest, fx: Effects) -> ConsumerHeartbeatResponse:
        """A member leaves, or a static one goes for a while."""
        if request.instance_id is None:
            member = self.member(request.member_id)
        else:
            member = self.known_static(request.instance_id, request.member_id)
        if request.instance_id is not None and request.member_epoch == LEAVE_STATIC_EPOCH:
            self.write_current(member._replace(member_epoch=LEAVE_STATIC_EPOCH, pending_revocation={}), fx)
        else:
            self.fence([member], history.MEMBER_LEFT, fx)
        return ConsumerHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)

    # ── offsets ───────────────────────────────────────────────────────────────────────────────────────────────────

    def check_commit(self, request: m.CommitRequest | m.TransactionalCommitRequest, fx: Effects) -> None:
        if request.generation_id < 0 and not self.members:
            return  # An admin, or a consumer that only keeps its offsets here.
        is_transactional = isinstance(request, m.TransactionalCommitRequest)
        is_anonymous = request.member_id == m.UNKNOWN_MEMBER_ID and request.group_instance_id is None
        if is_transactional and request.generation_id == m.NO_GENERATION and is_anonymous:
            return
        member = self.member(request.member_id)
        if not is_transactional and member.classic is None and request.api_version < 9:
            raise errors.UnsupportedVersion(
                "OffsetCommit version 9 or above must be used by members using the modern group protocol."
            )
        _check_current_epoch(member, request.generation_id)

    def check_fetch(self, request: m.FetchRequest) -> None:
        if request.member_id is not None or request.member_epoch >= 0:
            _check_current_epoch(self.member(request.member_id or ""), request.member_epoch)

    def check_delete_offsets(self) -> None:
        """Nothing is against it but a subscription to the topic."""

    def check_delete(self) -> None:
        if self.members:
            raise errors.NonEmptyGroup()

    def offset_expiry(self, fx: Effects) -> IsExpired | None:
        retention = self.shard.config.offsets_retention_ms
        return retention_expiry(retention, now=fx.now)

    # ── the life of the group ─────────────────────────────────────────────────────────────────────────────────────

    def fire(self, key: tuple[Hashable, ...], fx: Effects) -> None:
        if key[0] == REGEX:
            self.resolve_regexes(fx)
            return
        member = self.members.get(str(key[2])) if len(key) > 2 else None
        if member is None:
            return
        match key[0]:
            case name if name == SESSION:
                self.session_ran_out(member, fx)
            case name if name == REBALANCE:
                self.revocation_ran_out(member, fx)
            case name if name in (JOIN, SYNC):
                kind = history.NEVER_SYNCED if name == SYNC else NEVER_REJOINED
                self.fence([member], kind, fx)

    def loaded(self, fx: Effects) -> None:
        self.topics_created(fx)
        self.set_loaded_timers(fx)
        self.resume_rebalance()
        self.explain_loss(fx)

    def delete(self, fx: Effects) -> None:
        self.is_downgraded = False
        self.write_tombstones(fx)

    def append_failed(self, keys: Collection[r.Key], fx: Effects) -> None:
        self.sessions.clear()
        self.following.clear()
        if r.ConsumerGroupMetadataKey(self.group_id) in keys:
            self.topics_not_remembered()
        self.resume_rebalance()
        self.set_loaded_timers(fx)


_NOTHING = (None, -1, None, None, None)
"""What a request says from its rack to its assignor if nothing has changed."""


def _changed_by(member: Member, request: ConsumerHeartbeatRequest) -> Member:
    """Return the member as the request says that it is now; what is None stays."""
    if (
        request[4:9] == _NOTHING
        and request.client_id == member.client_id
        and request.client_host == member.client_host
        and request.instance_id == member.instance_id
        and member.classic is None
    ):
        return member  # A heartbeat as most are.
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    return member._replace(
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout=member.rebalance_timeout if request.rebalance_timeout == -1 else request.rebalance_timeout,
        server_assignor=member.server_assignor if request.server_assignor is None else request.server_assignor,
        subscribed_topic_names=member.subscribed_topic_names if names is None else sorted_names(names),
        subscribed_topic_regex=member.subscribed_topic_regex if regex is None else regex,
        client_id=request.client_id,
        client_host=request.client_host,
        classic=None,
    )


def _check_epoch(member: Member, epoch: int, owned: Partitions | None) -> None:
    """Raise FencedMemberEpoch unless the epoch is the member's, or the one before and the answer was lost."""
    if epoch in (JOIN_EPOCH, member.member_epoch):
        return
    is_subset = owned is not None and all(
        numbers <= member.assigned.get(topic_id, frozenset()) for topic_id, numbers in owned.items()
    )
    if epoch < member.member_epoch and epoch == member.previous_member_epoch and is_subset:
        return
    size = "greater" if epoch > member.member_epoch else "smaller"
    raise errors.FencedMemberEpoch(
        f"The consumer group member has a {size} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.member_epoch}). The member must abandon all its partitions and rejoin."
    )


def _check_current_epoch(member: Member, epoch: int) -> None:
    if epoch == member.member_epoch:
        return
    if member.classic is not None:
        raise errors.IllegalGeneration(
            f"The received generation id {epoch} does not match the expected member epoch {member.member_epoch}."
        )
    raise errors.StaleMemberEpoch(
        f"The received member epoch {epoch} does not match the expected member epoch {member.member_epoch}."
    )
