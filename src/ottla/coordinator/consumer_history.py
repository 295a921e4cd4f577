"""Why a consumer group rebalanced: collects triggers while members are on their way, and writes one record at the end.

A rebalance begins when the group epoch is raised and ends when every member has what the target gives it, or nobody is
left. What an epoch raised meanwhile belongs to the same rebalance.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from ottla.coordinator import history
from ottla.coordinator import records as r
from ottla.coordinator.consumer_member import Member, MemberState, Partitions
from ottla.coordinator.consumer_state import ConsumerState
from ottla.coordinator.effects import Effects
from ottla.coordinator.group import Shard, TopicInfo
from ottla.types import Millis

REVOCATION_TIMED_OUT = "revocation timed out"
NEVER_REJOINED = "member never joined again"
"""Kinds of triggers that classic groups have not: a member did not give up its partitions in time, and one of the
classic protocol did not do as its heartbeat told it."""


@dataclass(slots=True)
class _Rebalance:
    trace: history.Trace
    target: Mapping[str, Partitions]
    """The target when it began,"""
    names: Mapping[UUID, str]
    """and what its topics were called then."""


class ExplainedConsumerState(ConsumerState):
    """A consumer group that remembers why its members are on their way."""

    def __init__(self, shard: Shard, group_id: str) -> None:
        super().__init__(shard, group_id)
        self.default_assignor = shard.config.group_consumer_assignors[0]
        self._rebalance: _Rebalance | None = None
        self._known_topics: dict[str, TopicInfo] = {}
        """What the metadata hash was last computed of, to tell what has changed."""

    def trigger(self, kind: str, fx: Effects, who: r.Who | None = None, reason: str = "") -> None:
        """Note what raised the group epoch."""
        if self._rebalance is None:
            names = self._names_of(self.target_topics)
            self._rebalance = _Rebalance(history.Trace(started_at=fx.now), dict(self.target), names)
        self._rebalance.trace.trigger(r.Trigger(kind, fx.now, who, reason))

    def was_too_slow(self, member: Member, waited: Millis) -> None:
        """Note that a member did not give up its partitions in time."""
        if self._rebalance is not None:
            self._rebalance.trace.name_late(member.who, waited=waited, removed=True)

    def remember_topics(self, names: Collection[str]) -> str:
        """Remember the topics that the group depends on now; return what kind of change that is."""
        topics = self.shard.topics()
        known, self._known_topics = self._known_topics, {name: topics[name] for name in names if name in topics}
        same_topics = {name: info.topic_id for name, info in known.items()} == {
            name: info.topic_id for name, info in self._known_topics.items()
        }
        return history.PARTITIONS_ADDED if same_topics and known else history.TOPIC_METADATA_CHANGED

    def finish_if_reconciled(self, member: Member, epoch: int, target: Mapping[str, Partitions], fx: Effects) -> None:
        """Write the history if this member was the last on its way."""
        if self._rebalance is None or not member.is_reconciled_to(epoch):
            return
        if len(self.members) - len(self.settled.get(epoch, ())) > 2:
            return  # More than this one and the one whose place it takes: no need to look who they are.
        late = {each for at, members in self.settled.items() if at != epoch for each in members} - {member.member_id}
        if not any(member_id in target for member_id in late):
            self._finish(history.STABLE, epoch, target, fx)

    def finish_empty(self, epoch: int, fx: Effects) -> None:
        if self._rebalance is not None:
            self._finish(history.EMPTY, epoch, {}, fx)

    def _finish(self, outcome: str, epoch: int, target: Mapping[str, Partitions], fx: Effects) -> None:
        assert self._rebalance is not None
        rebalance, self._rebalance = self._rebalance, None
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

    def explain(self) -> history.Explanation:
        trace = None if self._rebalance is None else self._rebalance.trace
        slow = (member for member in self.members.values() if not member.is_reconciled_to(self.group_epoch))
        return history.Explanation(
            group_id=self.group_id,
            state=self.state,
            rebalances=self.shard.histories.of_group(self.group_id),
            since=None if trace is None else trace.started_at,
            triggers=() if trace is None else tuple(trace.triggers),
            waiting_for=tuple(member.who for member in slow if member.state is not MemberState.UNRELEASED_PARTITIONS),
        )

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
        """Return what topics are called; one that is no more is called by its id."""
        topics = self.shard.topics()
        # Nearly always they are among those that the group subscribes to: there is no need to look at all.
        names = {topics[name].topic_id: name for name in self.subscribed_topics() if name in topics}
        if not all(topic_id in names for topic_id in topic_ids):
            names = {info.topic_id: name for name, info in topics.items()}
        return {topic_id: names.get(topic_id) or str(topic_id) for topic_id in topic_ids}


def _owners(
    target: Mapping[str, Partitions], members: Iterable[str], names: Mapping[UUID, str]
) -> dict[tuple[str, int], str]:
    return {
        (names[topic_id], number): member_id
        for member_id in members
        for topic_id, numbers in target.get(member_id, {}).items()
        for number in numbers
    }
