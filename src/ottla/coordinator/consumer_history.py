"""Why a consumer group rebalanced: collects triggers while members are on their way, and writes one record at the end.

A rebalance begins when the group epoch is raised and ends when every member has what the target gives it, or nobody is
left. What an epoch raised meanwhile belongs to the same rebalance. What is known of it is written with the epoch and
with the target, so that a restart, and a person who asks meanwhile, know it as well; a rebalance with more triggers
than are kept is not written again for each of them.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from ottla.coordinator import history
from ottla.coordinator import records as r
from ottla.coordinator.consumer_member import Member, Partitions
from ottla.coordinator.consumer_messages import LEAVE_STATIC_EPOCH
from ottla.coordinator.consumer_state import ConsumerState
from ottla.coordinator.effects import Effects
from ottla.coordinator.group import Shard, TopicInfo
from ottla.types import Millis

REVOCATION_TIMED_OUT = "revocation timed out"
NEVER_REJOINED = "member never joined again"
"""Kinds of triggers that classic groups have not: a member did not give up its partitions in time, and one of the
classic protocol did not do as its heartbeat told it."""


GAVE_UP = "gave up its partitions"
TOOK = "took its partitions"
"""What members are late with."""
MAX_TOPICS = 5
"""Topics that are named when they change."""


@dataclass(slots=True)
class _Rebalance:
    trace: history.Trace
    target: Mapping[str, Partitions]
    """The target when it began,"""
    names: Mapping[UUID, str]
    """and what its topics were called then."""
    is_told: bool = False
    """Whether the log has all of it."""
    last_to_revoke: r.Who | None = None


class ExplainedConsumerState(ConsumerState):
    """A consumer group that remembers why its members are on their way."""

    def __init__(self, shard: Shard, group_id: str) -> None:
        super().__init__(shard, group_id)
        self.default_assignor = shard.config.group_consumer_assignors[0]
        self._rebalance: _Rebalance | None = None
        self._known_topics: dict[str, TopicInfo] = {}
        """What the metadata hash was last computed of, to tell what has changed."""
        self._former_topics: dict[str, TopicInfo] = {}
        """The topics that it was computed of before."""

    # ── the beginning ─────────────────────────────────────────────────────────────────────────────────────────────

    def trigger(self, kind: str, fx: Effects, who: r.Who | None = None, reason: str = "") -> None:
        """Note what raised the group epoch."""
        if self._rebalance is None:
            self.begin(self.shard.histories.trace(self.group_id, now=fx.now))
        assert self._rebalance is not None
        self._rebalance.trace.trigger(r.Trigger(kind, fx.now, who, reason))
        self._rebalance.is_told = False

    def begin(self, trace: history.Trace) -> None:
        """A rebalance begins, or goes on from that of a classic group."""
        self._rebalance = _Rebalance(trace, dict(self.target), self._names_of(self.target_topics))

    def resume_rebalance(self) -> None:
        """Take up the rebalance that is under way, if one is, as the log has it."""
        value = self.shard.histories.under_way(self.group_id)
        self._rebalance = None
        if value is not None:
            target = self._target_before(value.moves)
            topic_ids = {topic_id for share in target.values() for topic_id in share}
            trace = history.Trace.of(value)
            trace.unnamed_moves = value.partitions_moved - len(value.moves)
            self._rebalance = _Rebalance(trace, target, self._names_of(topic_ids), is_told=True)

    def _target_before(self, moves: Iterable[r.PartitionMove]) -> dict[str, Partitions]:
        """Return the target as it was before partitions moved."""
        topics = self.shard.topics()
        owners = {
            (topic_id, number): member_id
            for member_id, share in self.target.items()
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
        """After a restart: members are on their way and nothing says why, since another broker wrote the log."""
        away = LEAVE_STATIC_EPOCH
        on_their_way = (
            each.member_epoch != away and not each.is_reconciled_to(self.group_epoch) for each in self.members.values()
        )
        if self._rebalance is None and any(on_their_way):
            self.trigger(history.CAUSE_LOST, fx)

    # ── meanwhile ─────────────────────────────────────────────────────────────────────────────────────────────────

    def was_too_slow(self, member: Member, waited: Millis) -> None:
        """Note that a member did not give up its partitions in time."""
        if self._rebalance is not None:
            self._rebalance.trace.name_late(member.who, waited=waited, removed=True)

    def gave_up(self, member: Member | None, fx: Effects) -> None:
        """Note that a member has given up what it had to, or that it was taken from one that is no longer here."""
        if self._rebalance is not None:
            self._rebalance.trace.revoked_at = fx.now
            self._rebalance.last_to_revoke = member and member.who

    def tell(self, epoch: int, target: Mapping[str, Partitions], fx: Effects, *, is_new: bool = False) -> None:
        """Write what is known of the rebalance that is under way, unless the log has it; the target may be new."""
        rebalance = self._rebalance
        if rebalance is None or (rebalance.is_told and not is_new):
            return
        if rebalance.trace.left_out and self.shard.histories.under_way(self.group_id) is not None:
            return
        rebalance.is_told = True
        self._write(rebalance, history.UNDER_WAY, epoch, target, fx)

    def static_member_returned(self, member: Member, epoch: int, fx: Effects) -> None:
        """Note that a static member has taken its place again, which moves nothing."""
        if self._rebalance is not None:
            self.trigger(history.STATIC_MEMBER_REPLACED, fx, member.who)
            return
        trigger = r.Trigger(history.STATIC_MEMBER_REPLACED, fx.now, member.who)
        rebalance = _Rebalance(history.Trace(fx.now, [trigger]), self.target, self._names_of(self.target_topics))
        self._write(rebalance, history.UNCHANGED, epoch, self.target, fx)

    def remember_topics(self, names: Collection[str]) -> tuple[str, str]:
        """Remember the topics that the group depends on now; return what kind of change that is, and what changed."""
        topics, known = self.shard.topics(), self._known_topics
        self._former_topics, self._known_topics = known, {name: topics[name] for name in names if name in topics}
        # What is still there, and nobody reads any more because they left, has not changed.
        known = {name: info for name, info in known.items() if name in names or name not in topics}
        if not known:  # Nobody knows what they were before a restart.
            return history.TOPIC_METADATA_CHANGED, ""
        return _what_changed(known, self._known_topics)

    def topics_not_remembered(self) -> None:
        """What was decided of the topics was not written: they are compared with the former ones once more."""
        self._known_topics = self._former_topics

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────────────────

    def goes_on_without_a_word(self, epoch: int) -> bool:
        """Whether nothing has to be written of the rebalance when one more member comes to rest in an epoch."""
        rebalance = self._rebalance
        return rebalance is None or (rebalance.is_told and self._on_their_way(epoch) > 2)

    def _on_their_way(self, epoch: int) -> int:
        """How many members are not yet in an epoch, nor about to be."""
        return len(self.members) - len(self.settled.get(epoch, ())) - len(self.following)

    def finish_if_reconciled(self, member: Member, epoch: int, target: Mapping[str, Partitions], fx: Effects) -> None:
        """Write the history if this member was the last on its way."""
        if self._rebalance is None or not member.is_reconciled_to(epoch):
            return
        if self._on_their_way(epoch) > 2:
            return  # More than this one and the one whose place it takes: no need to look who they are.
        late = {each for at, members in self.settled.items() if at != epoch for each in members} - {member.member_id}
        if not any(member_id in target for member_id in late):
            self._name_last(self._rebalance, member, fx)
            self._finish(history.STABLE, epoch, target, fx)

    def _name_last(self, rebalance: _Rebalance, member: Member, fx: Effects) -> None:
        """Name the last to give up partitions and the last to take some, if they let the others wait."""
        trace = rebalance.trace
        waited = trace.revoked_at - trace.started_at
        if rebalance.last_to_revoke is not None and waited >= history.WORTH_NAMING:
            trace.name_late(rebalance.last_to_revoke, waited=waited, removed=False, did=GAVE_UP)
        if fx.now - max(trace.revoked_at, trace.started_at) >= history.WORTH_NAMING:
            trace.name_late(member.who, waited=fx.now - trace.started_at, removed=False, did=TOOK)

    def finish_empty(self, epoch: int, fx: Effects) -> None:
        if self._rebalance is not None:
            self._finish(history.EMPTY, epoch, {}, fx)

    def _finish(self, outcome: str, epoch: int, target: Mapping[str, Partitions], fx: Effects) -> None:
        assert self._rebalance is not None
        rebalance, self._rebalance = self._rebalance, None
        self._write(rebalance, outcome, epoch, target, fx)

    def _write(
        self, rebalance: _Rebalance, outcome: str, epoch: int, target: Mapping[str, Partitions], fx: Effects
    ) -> None:
        if isinstance(target, ChainMap):  # All of it is looked at.
            changed, present = target.maps
            target = {**present, **changed}
        before, after, kept = self._owners_that_changed(rebalance, target)
        value = rebalance.trace.finish(
            self.shard.histories.next_number(self.group_id),
            outcome=outcome,
            generation=epoch,
            protocol=self.preferred_assignor() or self.default_assignor,
            members=len(target),
            leader="",
            before=before,
            after=after,
            kept_elsewhere=kept,
            now=fx.now,
        )
        self.shard.histories.write(self.group_id, value, fx)

    def _owners_that_changed(
        self, rebalance: _Rebalance, target: Mapping[str, Partitions]
    ) -> tuple[history.Owners, history.Owners, int]:
        """Return who had and who has what, of members whose share is another now, and how much the others keep."""
        former = rebalance.target
        changed = [each for each, share in target.items() if former.get(each) is not share]
        changed += [each for each in former if each not in target]
        topics = {topic_id for each in changed for topic_id in target.get(each, ())}
        names = self._names_of(topics | rebalance.names.keys())
        if any(names[topic_id] != name for topic_id, name in rebalance.names.items()):
            changed = [*(former.keys() | target.keys())]  # What keeps its owner does not keep its name.
        kept = sum(len(numbers) for each in target.keys() - changed for numbers in target[each].values())
        return _owners(former, changed, rebalance.names), _owners(target, changed, names), kept

    def _names_of(self, topic_ids: Collection[UUID]) -> dict[UUID, str]:
        """Return what topics are called, or were if they are no more; by their ids if nobody remembers."""
        topics = self.shard.topics()
        # Nearly always they are among those that the group subscribes to: there is no need to look at all.
        names = {topics[name].topic_id: name for name in self.subscribed_topics() if name in topics}
        if not all(topic_id in names for topic_id in topic_ids):
            names = {info.topic_id: name for name, info in topics.items()}
        return {topic_id: names.get(topic_id) or self._former_name(topic_id) for topic_id in topic_ids}

    def _former_name(self, topic_id: UUID) -> str:
        name = next((name for name, info in self._former_topics.items() if info.topic_id == topic_id), None)
        return f"{name} (deleted)" if name is not None else str(topic_id)


def _owners(
    target: Mapping[str, Partitions], members: Iterable[str], names: Mapping[UUID, str]
) -> dict[tuple[str, int], str]:
    shares = [(member_id, share) for member_id in members for share in target.get(member_id, {}).items()]
    return {
        (name, number): member_id
        for member_id, (topic_id, numbers) in shares
        for name in [names[topic_id]]
        for number in numbers
    }


def _what_changed(before: Mapping[str, TopicInfo], after: Mapping[str, TopicInfo]) -> tuple[str, str]:
    """Return the kind of trigger that other topics are, and what a person is told of them."""
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    told = [_change_of(name, before.get(name), after.get(name)) for name in changed[:MAX_TOPICS]]
    if len(changed) > MAX_TOPICS:
        told.append(f"{len(changed) - MAX_TOPICS} more topics changed")
    same = before.keys() == after.keys() and all(before[name].topic_id == after[name].topic_id for name in changed)
    return history.PARTITIONS_ADDED if same else history.TOPIC_METADATA_CHANGED, "; ".join(told)


def _change_of(name: str, before: TopicInfo | None, after: TopicInfo | None) -> str:
    if before is None:
        return f"{name} is there now"
    if after is None:
        return f"{name} is gone"
    if before.topic_id != after.topic_id:
        return f"{name} was deleted and made anew"
    return f"{name} has {after.partitions} partitions instead of {before.partitions}"
