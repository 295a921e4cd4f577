"""Why a consumer group rebalanced: collects triggers while members reconcile, and writes one record at the end.

A rebalance starts when the group epoch is raised. It ends when every member has what the target gives it, or when the
group is empty. An epoch that is raised meanwhile belongs to the same rebalance. What is known so far is written with
the epoch and with the target, so that it survives a restart and can be asked for. A rebalance with more triggers than
are kept is not written again for each of them.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from ottla.coordinator import history
from ottla.coordinator import records as r
from ottla.coordinator.consumer.logged import LoggedGroup
from ottla.coordinator.consumer.member import Member, Partitions
from ottla.coordinator.consumer.messages import LEAVE_STATIC_EPOCH
from ottla.coordinator.consumer.target import Target
from ottla.coordinator.consumer.topics import KnownTopics
from ottla.coordinator.effects import Effects
from ottla.coordinator.group import Shard
from ottla.types import Millis

REVOCATION_TIMED_OUT = "revocation timed out"
NEVER_REJOINED = "member never joined again"
"""Kinds of triggers that only consumer groups have: a member did not give up its partitions in time, or a member of
the classic protocol did not join again after it was told to."""
GAVE_UP = "gave up its partitions"
TOOK = "took its partitions"
"""What members are late with."""


@dataclass(slots=True)
class Rebalance:
    """The rebalance under way."""

    trace: history.Trace
    target: Target
    """The target when it started,"""
    names: Mapping[UUID, str]
    """and the names of its topics then."""
    is_told: bool = False
    """Whether the log has all of it."""
    last_to_revoke: r.Who | None = None


class RebalanceHistory:
    """Remembers why the members of a group are reconciling. Soft state: `resume` restores it from the log."""

    def __init__(self, shard: Shard, logged: LoggedGroup, topics: KnownTopics, default_assignor: str) -> None:
        self._shard = shard
        self._logged = logged
        self._topics = topics
        self._default_assignor = default_assignor
        self.rebalance: Rebalance | None = None

    # ── start ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def trigger(self, trigger: r.Trigger) -> None:
        """Note what raised the group epoch."""
        rebalance = self.rebalance or self.start(self._shard.histories.trace(self._logged.group_id, now=trigger.at))
        rebalance.trace.trigger(trigger)
        rebalance.is_told = False

    def start(self, trace: history.Trace) -> Rebalance:
        """Start a rebalance, or continue that of a classic group."""
        self.rebalance = Rebalance(trace, dict(self._logged.target), self._names_of(self._logged.target_topics))
        return self.rebalance

    def resume(self) -> None:
        """Continue the rebalance that the log says is under way, if there is one."""
        value = self._shard.histories.under_way(self._logged.group_id)
        self.rebalance = None
        if value is not None:
            target = self._target_before(value.moves)
            topic_ids = {topic_id for share in target.values() for topic_id in share}
            trace = history.Trace.of(value)
            trace.unnamed_moves = value.partitions_moved - len(value.moves)
            self.rebalance = Rebalance(trace, target, self._names_of(topic_ids), is_told=True)

    def _target_before(self, moves: Iterable[r.PartitionMove]) -> Target:
        """Return the target before partitions moved."""
        topics = self._shard.topics()
        owners = {
            (topic_id, number): member_id
            for member_id, share in self._logged.target.items()
            for topic_id, numbers in share.items()
            for number in numbers
        }
        for move in moves:
            if move.topic in topics:
                owners[topics[move.topic].topic_id, move.partition] = move.source or ""
        target: dict[str, dict[UUID, frozenset[int]]] = {}
        for (topic_id, number), member_id in owners.items():
            share = target.setdefault(member_id, {})
            share[topic_id] = share.get(topic_id, frozenset()) | {number}
        target.pop("", None)
        return {**target}

    def explain_loss(self, fx: Effects) -> None:
        """After a restart: note that members are reconciling and the log does not say why. Another broker wrote it."""
        away, epoch = LEAVE_STATIC_EPOCH, self._logged.group_epoch
        reconciling = (
            each.member_epoch != away and not each.is_reconciled_to(epoch) for each in self._logged.members.values()
        )
        if self.rebalance is None and any(reconciling):
            self.trigger(r.Trigger(history.CAUSE_LOST, fx.now))

    # ── meanwhile ─────────────────────────────────────────────────────────────────────────────────────────────────

    def was_too_slow(self, member: Member, waited: Millis) -> None:
        """Note that a member did not give up its partitions in time."""
        if self.rebalance is not None:
            self.rebalance.trace.name_late(member.who, waited=waited, removed=True)

    def gave_up(self, member: Member | None, fx: Effects) -> None:
        """Note that a member gave up its partitions; None if they were taken from a member that was removed."""
        if self.rebalance is not None:
            self.rebalance.trace.revoked_at = fx.now
            self.rebalance.last_to_revoke = member and member.who

    def tell(self, epoch: int, target: Target, fx: Effects, *, is_new: bool = False) -> None:
        """Write what is known of the rebalance unless the log has it. A new target is always written."""
        rebalance = self.rebalance
        if rebalance is None or (rebalance.is_told and not is_new):
            return
        if rebalance.trace.left_out and self._shard.histories.under_way(self._logged.group_id) is not None:
            return
        rebalance.is_told = True
        self._write(rebalance, history.UNDER_WAY, epoch, target, fx)

    def static_member_returned(self, member: Member, epoch: int, fx: Effects) -> None:
        """Note that a static member returned to its place, which moves nothing."""
        trigger = r.Trigger(history.STATIC_MEMBER_REPLACED, fx.now, member.who)
        if self.rebalance is not None:
            self.trigger(trigger)
            return
        target, names = self._logged.target, self._names_of(self._logged.target_topics)
        rebalance = Rebalance(history.Trace(fx.now, [trigger]), target, names)
        self._write(rebalance, history.UNCHANGED, epoch, target, fx)

    # ── end ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def finish_if_reconciled(self, member: Member, epoch: int, target: Target, fx: Effects) -> None:
        """Write the history if this member was the last to reconcile."""
        if self.rebalance is None or not member.is_reconciled_to(epoch):
            return
        if self._logged.behind(epoch) > 2:
            return  # More than this member and the one that it replaces: there is no need to look at them.
        late = {each for at, members in self._logged.settled.items() if at != epoch for each in members}
        if not any(member_id in target for member_id in late - {member.member_id}):
            self._name_last(self.rebalance, member, fx)
            self._finish(history.STABLE, epoch, target, fx)

    def _name_last(self, rebalance: Rebalance, member: Member, fx: Effects) -> None:
        """Name the last member to give up partitions and the last to take some, if the others had to wait."""
        trace = rebalance.trace
        waited = trace.revoked_at - trace.started_at
        if rebalance.last_to_revoke is not None and waited >= history.WORTH_NAMING:
            trace.name_late(rebalance.last_to_revoke, waited=waited, removed=False, did=GAVE_UP)
        if fx.now - max(trace.revoked_at, trace.started_at) >= history.WORTH_NAMING:
            trace.name_late(member.who, waited=fx.now - trace.started_at, removed=False, did=TOOK)

    def finish_empty(self, epoch: int, fx: Effects) -> None:
        if self.rebalance is not None:
            self._finish(history.EMPTY, epoch, {}, fx)

    def _finish(self, outcome: str, epoch: int, target: Target, fx: Effects) -> None:
        assert self.rebalance is not None
        rebalance, self.rebalance = self.rebalance, None
        self._write(rebalance, outcome, epoch, target, fx)

    def _write(self, rebalance: Rebalance, outcome: str, epoch: int, target: Target, fx: Effects) -> None:
        if isinstance(target, ChainMap):  # A plain dict is faster to go through.
            changed, present = target.maps
            target = {**present, **changed}
        before, after, kept = self._owners_that_changed(rebalance, target)
        histories, group_id = self._shard.histories, self._logged.group_id
        value = rebalance.trace.finish(
            histories.next_number(group_id),
            outcome=outcome,
            generation=epoch,
            protocol=self._logged.subscriptions.preferred_assignor() or self._default_assignor,
            members=len(target),
            leader="",
            before=before,
            after=after,
            kept_elsewhere=kept,
            now=fx.now,
        )
        histories.write(group_id, value, fx)

    def _owners_that_changed(self, rebalance: Rebalance, target: Target) -> tuple[history.Owners, history.Owners, int]:
        """Return the owners before and after, of members whose share changed, and how much the others keep."""
        former = rebalance.target
        changed = [each for each, share in target.items() if former.get(each) is not share]
        changed += [each for each in former if each not in target]
        topics = {topic_id for each in changed for topic_id in target.get(each, ())}
        names = self._names_of(topics | rebalance.names.keys())
        if any(names[topic_id] != name for topic_id, name in rebalance.names.items()):
            changed = [*(former.keys() | target.keys())]  # A partition kept its owner but not its name.
        kept = sum(len(numbers) for each in target.keys() - changed for numbers in target[each].values())
        return _owners(former, changed, rebalance.names), _owners(target, changed, names), kept

    def _names_of(self, topic_ids: Collection[UUID]) -> dict[UUID, str]:
        """Return the names of topics, former names of deleted topics, or ids if the name is unknown."""
        topics = self._shard.topics()
        # Nearly always they are among the subscribed topics. Then there is no need to look at all topics.
        names = {topics[name].topic_id: name for name in self._logged.subscriptions.topics() if name in topics}
        if not all(topic_id in names for topic_id in topic_ids):
            names = {info.topic_id: name for name, info in topics.items()}
        return {topic_id: names.get(topic_id) or self._former_name(topic_id) for topic_id in topic_ids}

    def _former_name(self, topic_id: UUID) -> str:
        name = self._topics.former_name(topic_id)
        return f"{name} (deleted)" if name is not None else str(topic_id)


def _owners(target: Target, members: Iterable[str], names: Mapping[UUID, str]) -> dict[tuple[str, int], str]:
    shares: list[tuple[str, Partitions]] = [(member_id, target.get(member_id, {})) for member_id in members]
    return {
        (names[topic_id], number): member_id
        for member_id, share in shares
        for topic_id, numbers in share.items()
        for number in numbers
    }
