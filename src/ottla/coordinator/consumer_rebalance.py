"""How a consumer group gets from one assignment to the next: epochs, targets, steps of members, timers, fencing.

The request that makes it happen is in ``consumer``. Soft here, and forgotten at a restart: when sessions end, and what
the group already knows of the topics.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ottla.assignors import Assignor, UniformAssignor
from ottla.coordinator import history
from ottla.coordinator import records as r
from ottla.coordinator.consumer_history import REVOCATION_TIMED_OUT, ExplainedConsumerState
from ottla.coordinator.consumer_member import Member, MemberState, Partitions, to_topic_partitions
from ottla.coordinator.consumer_migration import can_downgrade, downgrade
from ottla.coordinator.consumer_reconcile import Goal, reconcile
from ottla.coordinator.consumer_shares import even_shares
from ottla.coordinator.consumer_target import compute_target, metadata_hash
from ottla.coordinator.effects import Effects
from ottla.coordinator.group import Shard
from ottla.types import Millis

SESSION = "consumer-session"
REBALANCE = "consumer-rebalance"
JOIN = "consumer-join"
SYNC = "consumer-sync"


@dataclass(slots=True)
class Session:
    deadline: Millis
    timer_at: Millis
    """A heartbeat moves the deadline only; the timer is set again when it runs out too early."""


class Change(NamedTuple):
    """A member before and after a request. One that is new had nothing before."""

    before: Member
    after: Member
    replaces: Member | None = None
    """The static member whose place it takes."""

    @property
    def leaving(self) -> tuple[Member, ...]:
        return (self.before,) if self.replaces is None else (self.replaces,)


class ConsumerRebalance(ExplainedConsumerState):
    """A consumer group that moves partitions."""

    def __init__(self, shard: Shard, group_id: str, assignors: Mapping[str, Assignor]) -> None:
        super().__init__(shard, group_id)
        self.assignors = assignors
        self.default_assignor = next(iter(assignors))
        self.sessions: dict[str, Session] = {}
        self.is_downgraded = False
        """The records that make a classic group of it are being written."""
        self.asked_to_join: set[str] = set()
        """Members of the classic protocol that were told to join again."""
        self._checked_epoch: int | None = None
        """The epoch in which the topics were last looked at; None when they must be looked at again."""

    # ── the group epoch ───────────────────────────────────────────────────────────────────────────────────────────

    def topics_changed(self) -> None:
        """Topics that the group subscribes to have changed: look at them at the next heartbeat."""
        self._checked_epoch = None

    @property
    def must_check_topics(self) -> bool:
        # An epoch above the group's means that what was decided then was never written.
        return self._checked_epoch is None or self.group_epoch < self._checked_epoch

    def check_topics(self, change: Change, trigger: str | None, fx: Effects) -> int:
        """Raise the group epoch if there is a reason to, or the topics give one; return the epoch."""
        leaving = [member for member in change.leaving if member.member_id in self.members]
        names = self.subscribed_topics(leaving, change.after)
        hash_now = metadata_hash(names, self.shard.topics())
        kind, changed = self.remember_topics(names)
        who: r.Who | None = change.after.who
        reason = ""
        if trigger is None and hash_now != self.metadata_hash:
            trigger, who, reason = kind, None, changed
        epoch = self.group_epoch
        if trigger is not None:
            epoch += 1
            self.raise_epoch(epoch, hash_now, fx)
            self.trigger(trigger, fx, who, reason)
        self._checked_epoch = epoch
        if self.has_partition_metadata:
            fx.write(r.ConsumerGroupPartitionMetadataKey(self.group_id), None)
        return epoch

    def raise_epoch(self, epoch: int, hash_now: int, fx: Effects) -> None:
        fx.write(r.ConsumerGroupMetadataKey(self.group_id), r.ConsumerGroupMetadataValue(epoch, hash_now))

    # ── the target ────────────────────────────────────────────────────────────────────────────────────────────────

    def update_target(self, change: Change, epoch: int, fx: Effects) -> Mapping[str, Partitions]:
        """Compute the target for an epoch, write what is new in it, and return all of it."""
        leaving = [member for member in change.leaving if member.member_id in self.members]
        name = self.preferred_assignor(leaving, change.after)
        # A member may still ask for one that the broker had before.
        assignor = self.assignors.get(name or "") or self.assignors[self.default_assignor]
        target: Mapping[str, Partitions]
        changed = self._even_shares(assignor, change)
        if changed is not None:
            target = ChainMap(changed, self.target)
        else:
            target = self._assign(assignor, change, epoch)
            changed = {each: share for each, share in target.items() if self.target.get(each) != share}
        for member_id, share in changed.items():
            self.write_target(member_id, share, fx)
        value = r.ConsumerGroupTargetAssignmentMetadataValue(epoch)
        fx.write(r.ConsumerGroupTargetAssignmentMetadataKey(self.group_id), value)
        return target

    def _even_shares(self, assignor: Assignor, change: Change) -> dict[str, Partitions] | None:
        """Return what changes where all members subscribe to the same and ``uniform`` assigns; None elsewhere."""
        if type(assignor) is not UniformAssignor or not self.all_subscribe_like(change.after, change.leaving):
            return None
        if change.replaces is not None or len(self.target) != len(self.members):
            return None
        topics = self.shard.topics()
        infos = [topics[name] for name in sorted(self.topics_of(change.after)) if name in topics]
        wanted = [(info.topic_id, info.partitions) for info in infos]
        joining = None if change.after.member_id in self.members else change.after.member_id
        shares = even_shares(self.loads, joining, self.target, wanted, self.target_topics.keys())
        if shares is None:
            return None
        order = [*filter(shares.__contains__, self.members), *([] if joining is None else [joining])]
        return {member_id: shares[member_id] for member_id in order}

    def _assign(self, assignor: Assignor, change: Change, epoch: int) -> dict[str, Partitions]:
        """Return what the assignor says."""
        members, target = dict(self.members), dict(self.target)
        if change.replaces is not None:  # It may have come back under the id that it had.
            del members[change.replaces.member_id]
            target[change.after.member_id] = target.pop(change.replaces.member_id, {})
        members[change.after.member_id] = change.after
        return compute_target(assignor, members, self.topics_of_all(members), target, self.shard.topics(), epoch)

    def write_target(self, member_id: str, partitions: Partitions, fx: Effects) -> None:
        value = r.ConsumerGroupTargetAssignmentMemberValue(to_topic_partitions(partitions))
        fx.write(r.ConsumerGroupTargetAssignmentMemberKey(self.group_id, member_id), value)

    # ── the member ────────────────────────────────────────────────────────────────────────────────────────────────

    def reconcile(
        self,
        member: Member,
        epoch: int,
        target: Partitions,
        fx: Effects,
        *,
        owned: Partitions | None,
        subscription_changed: bool,
    ) -> Member:
        """Take a member one step towards its target."""
        if not subscription_changed and member.is_reconciled_to(epoch):
            return member
        goal = Goal(epoch, target, self.topic_ids_of(member), self.owners_of, subscription_changed, owned)
        updated = reconcile(member, goal)
        if updated != member:
            self.write_current(updated, fx)
            if member.state is MemberState.UNREVOKED_PARTITIONS and updated.state is not member.state:
                self.gave_up(member, fx)
            if updated.classic is None:
                self._set_rebalance_timer(member, updated, fx)
        return updated

    def write_member(self, member: Member, fx: Effects) -> None:
        fx.write(r.ConsumerGroupMemberMetadataKey(self.group_id, member.member_id), member.metadata_value())

    def write_current(self, member: Member, fx: Effects) -> None:
        fx.records.append(self.current_record(member))

    def current_record(self, member: Member) -> r.CoordinatorRecord:
        key = r.ConsumerGroupCurrentMemberAssignmentKey(self.group_id, member.member_id)
        return r.CoordinatorRecord(key, member.current_value())

    def write_removal(self, member_id: str, fx: Effects) -> None:
        fx.write(r.ConsumerGroupCurrentMemberAssignmentKey(self.group_id, member_id), None)
        fx.write(r.ConsumerGroupTargetAssignmentMemberKey(self.group_id, member_id), None)
        fx.write(r.ConsumerGroupMemberMetadataKey(self.group_id, member_id), None)

    # ── fencing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def fence(
        self, members: Sequence[Member], kind: str, fx: Effects, reasons: Mapping[str, str] | None = None
    ) -> None:
        """Remove members and raise the epoch; those who stay get their partitions at their next heartbeats."""
        if not members:
            return
        reasons = reasons or {}
        if can_downgrade(self, members):
            last = members[-1]
            trigger = r.Trigger(kind, fx.now, last.who, reasons.get(last.member_id, ""))
            self._downgrade_without(members, trigger, fx)
            return
        for member in members:
            self.write_removal(member.member_id, fx)
        self.delete_unused_regexes(members, fx)
        names = self.subscribed_topics(members)
        self.raise_epoch(self.group_epoch + 1, metadata_hash(names, self.shard.topics()), fx)
        for member in members:
            self.forget_timers(member.member_id, fx)
            self.trigger(kind, fx, member.who, reasons.get(member.member_id, ""))
            if member.pending_revocation:
                self.gave_up(None, fx)
        if len(members) == len(self.members):
            self.finish_empty(self.group_epoch + 1, fx)
            return
        gone = {member.member_id for member in members}
        self.tell(self.group_epoch + 1, {each: share for each, share in self.target.items() if each not in gone}, fx)

    def delete_unused_regexes(self, leaving: Iterable[Member], fx: Effects) -> None:
        left = self.regexes.copy()
        left.subtract(member.subscribed_topic_regex for member in leaving if member.subscribed_topic_regex)
        for regex, count in left.items():
            if count == 0:
                fx.write(r.ConsumerGroupRegularExpressionKey(self.group_id, regex), None)

    def _downgrade_without(self, leaving: Sequence[Member], trigger: r.Trigger, fx: Effects) -> None:
        gone = {member.member_id for member in leaving}
        staying = [member for member in self.members.values() if member.member_id not in gone]
        downgrade(self, staying, trigger, fx)

    # ── the whole group ───────────────────────────────────────────────────────────────────────────────────────────

    def take_over(self, members: Iterable[Member], epoch: int, hash_now: int) -> None:
        """Become what a classic group was; the records that say so are written."""
        self.group_epoch = self.assignment_epoch = epoch
        self.metadata_hash = hash_now
        for member in members:
            self.replay_member(member.member_id, member.metadata_value())
            self.replay_current(member.member_id, member.current_value())
            self.set_target(member.member_id, member.assigned)

    def write_tombstones(self, fx: Effects) -> None:
        """Write the end of everything but the history, in the order in which Kafka reads it; stop the timers."""
        for member_id in self.members:
            fx.write(r.ConsumerGroupCurrentMemberAssignmentKey(self.group_id, member_id), None)
        for member_id in self.members:
            fx.write(r.ConsumerGroupTargetAssignmentMemberKey(self.group_id, member_id), None)
        fx.write(r.ConsumerGroupTargetAssignmentMetadataKey(self.group_id), None)
        for member_id in self.members:
            fx.write(r.ConsumerGroupMemberMetadataKey(self.group_id, member_id), None)
        for regex in self.resolved:
            fx.write(r.ConsumerGroupRegularExpressionKey(self.group_id, regex), None)
        fx.write(r.ConsumerGroupPartitionMetadataKey(self.group_id), None)
        fx.write(r.ConsumerGroupMetadataKey(self.group_id), None)
        for member_id in self.members:
            self.forget_timers(member_id, fx)

    # ── timers ────────────────────────────────────────────────────────────────────────────────────────────────────

    def touch(self, member_id: str, timeout: Millis, fx: Effects) -> None:
        """The member was heard of: its session starts again."""
        deadline = fx.now + timeout
        session = self.sessions.get(member_id)
        if session is not None and session.timer_at <= deadline:
            session.deadline = deadline
            return
        self.sessions[member_id] = Session(deadline, deadline)
        fx.set_timer((SESSION, self.group_id, member_id), deadline)

    def _set_rebalance_timer(self, before: Member, after: Member, fx: Effects) -> None:
        """Members of the classic protocol have other timers: to join again, and to sync."""
        if after.state is MemberState.UNREVOKED_PARTITIONS:
            fx.set_timer((REBALANCE, self.group_id, after.member_id), fx.now + after.rebalance_timeout)
        elif before.state is MemberState.UNREVOKED_PARTITIONS:
            fx.cancel_timer((REBALANCE, self.group_id, after.member_id))

    def forget_timers(self, member_id: str, fx: Effects) -> None:
        self.sessions.pop(member_id, None)
        self.asked_to_join.discard(member_id)
        for name in (SESSION, REBALANCE, JOIN, SYNC):
            fx.cancel_timer((name, self.group_id, member_id))

    def session_ran_out(self, member: Member, fx: Effects) -> None:
        session = self.sessions.get(member.member_id)
        if session is not None and session.deadline > fx.now:
            session.timer_at = session.deadline
            fx.set_timer((SESSION, self.group_id, member.member_id), session.deadline)
            return
        self.fence([member], history.SESSION_EXPIRED, fx)

    def revocation_ran_out(self, member: Member, fx: Effects) -> None:
        # A static member that went for a while meanwhile has nothing to give up: it has its session to come back.
        if member.pending_revocation:
            self.was_too_slow(member, member.rebalance_timeout)
            self.fence([member], REVOCATION_TIMED_OUT, fx)

    def set_loaded_timers(self, fx: Effects) -> None:
        """After a restart every member has a whole session, and those that revoke their whole time."""
        for member in self.members.values():
            self.touch(member.member_id, self.session_timeout_of(member), fx)
            if member.classic is None:
                self._set_rebalance_timer(member, member, fx)
