"""A consumer group (KIP-848). It returns the same errors as Kafka 4.2.

Requests come in through ``consumer_members.py`` and ``classic_members.py``, one for each protocol. What they have in
common is here: a change of a member may raise the group epoch, compute a new target, and take the member one step
towards it.

`ConsumerGroup.logged` is what the records say. Only `replay` changes it. The other parts are soft state, which
operations change at once and a restart forgets:

- `timers`: when sessions and other deadlines of members end.
- `known_topics`: whether the topics must be checked, and what they were.
- `patterns`: whether a resolution of regular expressions was requested, and by which member.
- `history`: why the members are reconciling; the log has a copy.
- `following`: members whose step was decided by `follow` and is not replayed yet.

If the log does not take records of the group, `append_failed` puts all of them right.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from ottla import errors
from ottla.assignors import Assignor
from ottla.coordinator import history
from ottla.coordinator import messages as m
from ottla.coordinator import records as r
from ottla.coordinator.classic.group import DOWNGRADED
from ottla.coordinator.consumer.classic_members import ClassicMembers
from ottla.coordinator.consumer.consumer_members import ConsumerMembers
from ottla.coordinator.consumer.history import NEVER_REJOINED, REVOCATION_TIMED_OUT, RebalanceHistory
from ottla.coordinator.consumer.logged import LoggedGroup
from ottla.coordinator.consumer.member import Change, Member, MemberState, Partitions
from ottla.coordinator.consumer.messages import LEAVE_STATIC_EPOCH, ConsumerHeartbeatRequest, ConsumerHeartbeatResponse
from ottla.coordinator.consumer.migration import can_downgrade, classic_record
from ottla.coordinator.consumer.patterns import REGEX, Patterns, RegexChange
from ottla.coordinator.consumer.reconciliation import Goal, reconcile
from ottla.coordinator.consumer.records import RecordWriter
from ottla.coordinator.consumer.target import TargetBuilder
from ottla.coordinator.consumer.timers import JOIN, REBALANCE, SESSION, SYNC, MemberTimers
from ottla.coordinator.consumer.topics import KnownTopics, metadata_hash
from ottla.coordinator.effects import Effects
from ottla.coordinator.group import CONSUMER, Shard, retention_expiry
from ottla.coordinator.offsets import IsExpired
from ottla.machine import Outcome
from ottla.types import Millis


class ConsumerGroup:
    """A group whose partitions the coordinator assigns."""

    type = CONSUMER

    def __init__(self, shard: Shard, group_id: str, assignors: Mapping[str, Assignor]) -> None:
        self.shard = shard
        self.group_id = group_id
        self.logged = LoggedGroup(group_id)
        self.writer = RecordWriter(group_id)
        self.timers = MemberTimers(shard, group_id)
        self.known_topics = KnownTopics()
        self.following: set[str] = set()
        self._targets = TargetBuilder(assignors)
        self.patterns = Patterns(self.logged, self.writer, shard.config.group_consumer_regex_refresh_interval_ms)
        self.history = RebalanceHistory(shard, self.logged, self.known_topics, self._targets.default)
        self._consumer = ConsumerMembers(self)
        self._classic = ClassicMembers(self)

    # ── queries ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def members(self) -> Mapping[str, Member]:
        return self.logged.members

    @property
    def group_epoch(self) -> int:
        return self.logged.group_epoch

    @property
    def is_empty(self) -> bool:
        return not self.logged.members

    @property
    def state(self) -> str:
        return self.logged.state

    @property
    def assignor_name(self) -> str:
        return self.logged.subscriptions.preferred_assignor() or self._targets.default

    def listed(self) -> m.ListedGroup:
        return m.ListedGroup(self.group_id, "consumer", self.state, CONSUMER)

    def is_subscribed(self, topic: str) -> bool:
        return self.logged.subscriptions.includes(topic)

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────

    def follow(
        self, request: ConsumerHeartbeatRequest, *, now: Millis
    ) -> Outcome[r.CoordinatorRecord, ConsumerHeartbeatResponse] | None:
        """Answer the usual heartbeat: nothing is new, or a member that keeps its partitions enters the target's epoch.

        It does what `consumer_heartbeat` would do, in less time. None means that `consumer_heartbeat` must be called.
        A step of this kind does not concern other members, so several can be decided before the first is written.
        """
        logged, member_id = self.logged, request.member_id
        epoch = logged.assignment_epoch
        member, session = logged.members.get(member_id), self.timers.sessions.by_member.get(member_id)
        if (
            member is None
            or session is None
            or not 0 < request.member_epoch == member.member_epoch
            or member.changed_by(request) is not member
            or not self.has_target()
        ):
            return None
        rebalance = self.history.rebalance
        # The last members take the long way, which writes the history.
        if rebalance is not None and (not rebalance.is_told or logged.behind(epoch) - len(self.following) <= 2):
            return None
        if request.instance_id is not None and logged.static_members.get(request.instance_id) != member_id:
            return None
        times = self.shard.times_of(self.group_id)
        deadline = now + times.session_timeout
        if session.timer_at > deadline:
            return None
        records: tuple[r.CoordinatorRecord, ...] = ()
        if member.member_epoch != epoch or member.state is not MemberState.STABLE:
            if not self._keeps_all(member):
                return None
            records = (self.writer.current_record(member.in_epoch(epoch, MemberState.STABLE, member.assigned)),)
            self.following.add(member_id)
        session.deadline = deadline
        return Outcome(records, ConsumerHeartbeatResponse(0, None, member_id, epoch, times.heartbeat_interval))

    def has_target(self) -> bool:
        """Return whether the target is current."""
        logged = self.logged
        is_current = 0 < logged.group_epoch <= logged.assignment_epoch and self.known_topics.are_checked
        return is_current and not logged.subscriptions.regexes

    def _keeps_all(self, member: Member) -> bool:
        """Return whether the target is what the member has, and its step is not decided yet.

        The topics are those of the target: if one is deleted, they must be checked first.
        """
        is_here = member.state is MemberState.STABLE and member.member_id not in self.following
        return is_here and self.logged.target.get(member.member_id) == member.assigned

    def consumer_heartbeat(self, request: ConsumerHeartbeatRequest, fx: Effects) -> ConsumerHeartbeatResponse:
        self.patterns.sees = request.sees
        return self._consumer.heartbeat(request, fx)

    def consumer_leave(self, request: ConsumerHeartbeatRequest, fx: Effects) -> ConsumerHeartbeatResponse:
        return self._consumer.leave(request, fx)

    def join(self, request: m.JoinRequest, fx: Effects) -> m.JoinResponse:
        return self._classic.join(request, fx)

    def sync(self, request: m.SyncRequest, fx: Effects) -> m.SyncResponse:
        return self._classic.sync(request, fx)

    def heartbeat(self, request: m.HeartbeatRequest, fx: Effects) -> m.HeartbeatResponse:
        return self._classic.heartbeat(request, fx)

    def leave(self, request: m.LeaveRequest, fx: Effects) -> m.LeaveResponse:
        return self._classic.leave(request, fx)

    # ── members of both protocols ─────────────────────────────────────────────────────────────────────────────────

    def check_room(self, member_id: str) -> None:
        members, limit = self.logged.members, self.shard.config.group_consumer_max_size
        if member_id not in members and len(members) >= limit:
            raise errors.GroupMaxSizeReached(f"The consumer group has reached its maximum capacity of {limit} members.")

    def find_static(
        self, instance_id: str, member_id: str, fx: Effects, *, is_classic: bool
    ) -> tuple[Member, Member | None]:
        """Return the member of an instance that joins, and the present member of the instance that it replaces."""
        present = self.logged.static_member(instance_id)
        if present is None:
            return self.logged.members.get(member_id) or Member(member_id), None
        if not is_classic and present.classic is None and present.member_epoch != LEAVE_STATIC_EPOCH:
            raise errors.UnreleasedInstanceId(
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance "
                f"id is owned by {present.member_id} member."
            )
        member = present._replace(member_id=member_id, member_epoch=0, previous_member_epoch=0)
        self.writer.removal(present.member_id, fx)
        self.writer.member(member, fx)
        self.writer.target(member_id, self.logged.target.get(present.member_id, {}), fx)
        self.writer.current(member, fx)
        return member, present

    def change_member(
        self, before: Member, after: Member, replaces: Member | None, owned: Partitions | None, fx: Effects
    ) -> Member:
        """Change a member, and return it after a step towards its target.

        The epoch is raised and the target is computed, each if there is a reason to. Whatever can fail comes first, so
        that a request that is rejected leaves soft state as it was.
        """
        logged, topics = self.logged, self.shard.topics()
        change = Change(before, after, replaces, replaces is None and before.member_id not in logged.members)
        if after != before:
            self.writer.member(after, fx)
        regex_change = self.patterns.changed_by(change, fx)
        names_changed = after.subscribed_topic_names != before.subscribed_topic_names
        must_raise = not logged.group_epoch or names_changed or regex_change is RegexChange.RESOLVED
        check = self._check_topics(change, must_raise, fx) if must_raise or not self.known_topics.are_checked else None
        epoch = logged.group_epoch if check is None else check.epoch
        new = self._targets.build(logged, change, topics, epoch) if epoch > logged.assignment_epoch else None
        if new is not None:
            targets, target = new.shares, new.shares.get(after.member_id, {})
        else:
            epoch, targets, target = logged.assignment_epoch, logged.target, logged.target_of(after)
            if replaces is not None:
                others = {each: share for each, share in targets.items() if each != replaces.member_id}
                targets = {**others, after.member_id: target}
        member, is_changed = after, names_changed or regex_change is not RegexChange.NONE
        if is_changed or not after.is_reconciled_to(epoch):
            subscribed = logged.subscriptions.topic_ids_of(after, topics)
            member = reconcile(after, Goal(epoch, target, subscribed, logged.owners_of, is_changed, owned))

        # Nothing fails from here on.
        trigger = None if check is None else check.trigger
        if check is not None:
            self.known_topics.remember(check.names, topics, check.epoch)
        if trigger is not None:
            self.history.trigger(trigger)
        self.patterns.refresh_after(change, regex_change, fx)
        if replaces is not None:
            self.timers.replaced(replaces.member_id)
            if trigger is None:
                self.history.static_member_returned(after, logged.group_epoch, fx)
        if new is not None:
            self.writer.new_target(new.changed, epoch, fx)
        if member != after:
            self._write_step(after, member, fx)
        self.history.finish_if_reconciled(member, epoch, targets, fx)
        self.history.tell(epoch, targets, fx, is_new=new is not None)
        return member

    def _check_topics(self, change: Change, must_raise: bool, fx: Effects) -> _TopicCheck:
        """Raise the group epoch if the caller has a reason to, or if the subscribed topics have changed."""
        logged, topics = self.logged, self.shard.topics()
        names = logged.subscriptions.topics(change.leaving, change.after)
        hash_now = metadata_hash(names, topics)
        trigger = None
        if must_raise:
            trigger = r.Trigger(_why(change), fx.now, change.after.who)
        elif hash_now != logged.metadata_hash:
            kind, what = self.known_topics.difference(names, topics)
            trigger = r.Trigger(kind, fx.now, None, what)
        epoch = logged.group_epoch
        if trigger is not None:
            epoch += 1
            self.writer.epoch(epoch, hash_now, fx)
        if logged.has_partition_metadata:
            self.writer.no_partition_metadata(fx)
        return _TopicCheck(epoch, trigger, names)

    def _write_step(self, before: Member, after: Member, fx: Effects) -> None:
        self.writer.current(after, fx)
        if before.state is MemberState.UNREVOKED_PARTITIONS and after.state is not before.state:
            self.history.gave_up(before, fx)
        self.timers.moved(before, after, fx)

    def fence(
        self, members: Sequence[Member], kind: str, fx: Effects, reasons: Mapping[str, str] | None = None
    ) -> None:
        """Remove members and raise the epoch. The others get their partitions at their next heartbeats."""
        if not members:
            return
        logged, gone = self.logged, {member.member_id for member in members}
        triggers = [
            r.Trigger(kind, fx.now, member.who, (reasons or {}).get(member.member_id, "")) for member in members
        ]
        if can_downgrade(logged, self.shard.config, members):
            staying = [member for member in logged.members.values() if member.member_id not in gone]
            self.downgrade(staying, triggers[-1], fx)
            return
        for member in members:
            self.writer.removal(member.member_id, fx)
        self.patterns.drop_unused([member.subscribed_topic_regex for member in members], fx)
        epoch = logged.group_epoch + 1
        self.writer.epoch(epoch, metadata_hash(logged.subscriptions.topics(members), self.shard.topics()), fx)
        for member, trigger in zip(members, triggers, strict=True):
            self.timers.forget(member.member_id, fx)
            self.history.trigger(trigger)
            if member.pending_revocation:
                self.history.gave_up(None, fx)
        if len(members) == len(logged.members):
            self.history.finish_empty(epoch, fx)
        else:
            self.history.tell(epoch, {each: share for each, share in logged.target.items() if each not in gone}, fx)

    def downgrade(self, members: Collection[Member], trigger: r.Trigger, fx: Effects) -> None:
        """Make a classic group of members of the classic protocol, which then rebalances."""
        self.delete(fx)
        value = classic_record(members, self.group_epoch, self.shard.topics(), now=fx.now)
        fx.write(r.GroupMetadataKey(self.group_id), value)
        self.history.trigger(trigger)
        self.history.tell(self.group_epoch, self.logged.target, fx)
        # The classic group exists once its record is replayed. The timer, which is due at once, lets it rebalance.
        fx.set_timer((DOWNGRADED, self.group_id, trigger), fx.now)

    # ── offsets ───────────────────────────────────────────────────────────────────────────────────────────────────

    def check_commit(self, request: m.CommitRequest | m.TransactionalCommitRequest, fx: Effects) -> None:
        if request.generation_id < 0 and not self.logged.members:
            return  # An admin, or a consumer without a group that only stores its offsets here.
        is_transactional = isinstance(request, m.TransactionalCommitRequest)
        is_anonymous = request.member_id == m.UNKNOWN_MEMBER_ID and request.group_instance_id is None
        if is_transactional and request.generation_id == m.NO_GENERATION and is_anonymous:
            return
        member = self.logged.member(request.member_id)
        if not is_transactional and member.classic is None and request.api_version < 9:
            raise errors.UnsupportedVersion(
                "OffsetCommit version 9 or above must be used by members using the modern group protocol."
            )
        member.check_current_epoch(request.generation_id)

    def check_fetch(self, request: m.FetchRequest) -> None:
        if request.member_id is not None or request.member_epoch >= 0:
            self.logged.member(request.member_id or "").check_current_epoch(request.member_epoch)

    def check_delete_offsets(self) -> None:
        """Only a subscription to the topic forbids it."""

    def check_delete(self) -> None:
        if self.logged.members:
            raise errors.NonEmptyGroup()

    def offset_expiry(self, fx: Effects) -> IsExpired | None:
        return retention_expiry(self.shard.config.offsets_retention_ms, now=fx.now)

    # ── time and topics ───────────────────────────────────────────────────────────────────────────────────────────

    def fire(self, key: tuple[Hashable, ...], fx: Effects) -> None:
        if key[0] == REGEX:
            self._resolve_regexes(fx)
            return
        member = self.logged.members.get(str(key[2])) if len(key) > 2 else None
        if member is None:
            return
        if key[0] == SESSION and self.timers.sessions.is_over(member.member_id, fx):
            self.fence([member], history.SESSION_EXPIRED, fx)
        elif key[0] == REBALANCE and member.pending_revocation:
            # A static member that left for a while has nothing to give up. Its session decides.
            self.history.was_too_slow(member, member.rebalance_timeout)
            self.fence([member], REVOCATION_TIMED_OUT, fx)
        elif key[0] == JOIN:
            self.fence([member], NEVER_REJOINED, fx)
        elif key[0] == SYNC:
            self.fence([member], history.NEVER_SYNCED, fx)

    def _resolve_regexes(self, fx: Effects) -> None:
        """Match all expressions against all topics, and raise the epoch if the group subscribes to others now."""
        logged, topics = self.logged, self.shard.topics()
        if not logged.subscriptions.regexes:
            self.patterns.resolved()
            return
        names, changed = self.patterns.resolve(topics, fx)
        hash_now = metadata_hash(names, topics)
        if changed or hash_now != logged.metadata_hash:
            kind, who = self.patterns.asked_by
            _, what = self.known_topics.difference(names, topics)
            self.writer.epoch(logged.group_epoch + 1, hash_now, fx)
            self.known_topics.remember(names, topics, logged.group_epoch + 1)
            self.history.trigger(r.Trigger(kind, fx.now, who, "" if who else what))
            self.history.tell(logged.group_epoch + 1, logged.target, fx)

    def topics_changed(self, names: Collection[str], *, created: bool, now: Millis) -> None:
        """Topics were created, deleted or got partitions: the next heartbeat checks them."""
        if created:
            self.patterns.topics_created(now=now)
        if any(map(self.is_subscribed, names)):
            self.known_topics.changed()

    @property
    def member_ids(self) -> tuple[str, ...]:
        return tuple(self.logged.members)

    def force_rebalance(self, trigger: r.Trigger, fx: Effects) -> None:
        if self.logged.members:
            self.writer.epoch(self.logged.group_epoch + 1, self.logged.metadata_hash, fx)
            self.history.trigger(trigger)
            self.history.tell(self.logged.group_epoch + 1, self.logged.target, fx)

    def expire_session(self, member_id: str, fx: Effects) -> None:
        self.fence([self.logged.members[member_id]], history.SESSION_EXPIRED, fx)

    # ── the log ───────────────────────────────────────────────────────────────────────────────────────────────────

    def replay(self, key: Any, value: Any) -> None:
        """Change the logged state by one record."""
        kind = type(key)
        if kind is r.ConsumerGroupCurrentMemberAssignmentKey:
            self.following.discard(key.member_id)
        elif kind is r.ConsumerGroupRegularExpressionKey and value is not None:
            self.patterns.resolved()
        self.logged.replay(key, value)

    def loaded(self, fx: Effects) -> None:
        self.patterns.topics_created(now=fx.now)
        self.timers.start(self.logged.members.values(), fx)
        self.history.resume()
        self.history.explain_loss(fx)

    def append_failed(self, keys: Collection[r.Key], fx: Effects) -> None:
        """Put soft state right after the log did not take records of the group, whatever their keys."""
        self.following.clear()
        self.patterns.append_failed()
        self.known_topics.append_failed(self.logged.group_epoch)
        self.history.resume()
        self.timers.start(self.logged.members.values(), fx)

    def delete(self, fx: Effects) -> None:
        """Write the tombstones of the group, and cancel its timers."""
        members = self.logged.members
        self.writer.end(members, self.logged.subscriptions.resolved, fx)
        for member_id in members:
            self.timers.forget(member_id, fx)


class _TopicCheck(NamedTuple):
    epoch: int
    trigger: r.Trigger | None
    """Why the epoch was raised, if it was."""
    names: Collection[str]
    """The topics that the group subscribes to."""


def _why(change: Change) -> str:
    if change.replaces is not None:
        return history.STATIC_MEMBER_REPLACED
    return history.MEMBER_JOINED if change.is_new else history.SUBSCRIPTION_CHANGED
