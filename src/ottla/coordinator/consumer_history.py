"""Why a consumer group rebalanced: collects triggers while members are on their way, and writes one record at the end.

A rebalance begins when the group epoch is raised and ends when every member has what the target gives it, or nobody is
left. What an epoch raised meanwhile belongs to the same rebalance.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass

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
    before: history.Owners


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
            self._rebalance = _Rebalance(history.Trace(started_at=fx.now), self._owners_by_name(self.target))
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
        settled: Set[str] = self.settled.get(epoch, frozenset())
        if len(self.members) - len(settled) > 2:
            return  # More than this one and the one whose place it takes: no need to look who they are.
        late = self.members.keys() - settled - {member.member_id}
        if not any(member_id in target for member_id in late):
            self._finish(history.STABLE, epoch, target, fx)

    def finish_empty(self, epoch: int, fx: Effects) -> None:
        if self._rebalance is not None:
            self._finish(history.EMPTY, epoch, {}, fx)

    def _finish(self, outcome: str, epoch: int, target: Mapping[str, Partitions], fx: Effects) -> None:
        assert self._rebalance is not None
        value = self._rebalance.trace.finish(
            self.shard.histories.next_number(self.group_id),
            outcome=outcome,
            generation=epoch,
            protocol=self.preferred_assignor() or self.default_assignor,
            members=len(target),
            leader="",
            before=self._rebalance.before,
            after=self._owners_by_name(target),
            now=fx.now,
        )
        self._rebalance = None
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

    def _owners_by_name(self, target: Mapping[str, Partitions]) -> dict[tuple[str, int], str]:
        names = {info.topic_id: name for name, info in self.shard.topics().items()}
        return {
            (names.get(topic_id, str(topic_id)), number): member_id
            for member_id, partitions in target.items()
            for topic_id, numbers in partitions.items()
            for number in numbers
        }
