"""Leaders that lag behind the controller never commit without a replica that the controller could elect.

A leader has seen some state of its epoch, and has proposals under way. It commits what all members of the ISR that it
knows and of its proposals have, if that ISR has its minimum. A deposed leader does the same until the new leader, which
it needs for that, has heard of its leadership.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.metadata.controlled import Controlled

from ottla import errors
from ottla.metadata.changes import UNCLEAN
from ottla.metadata.partitions import IsrChange, alter_partitions
from ottla.metadata.reassignment import reassign
from ottla.metadata.values import NO_LEADER, PartitionState, ReplicationSettings
from ottla.types import TopicPartition

P0 = TopicPartition("orders", 0)
BROKERS = (1, 2, 3, 4)
some = st.sampled_from(BROKERS)
sets = st.lists(some, unique=True, max_size=4)
OF_LEADERS = st.one_of(
    st.tuples(st.sampled_from(["propose", "alter"]), sets), st.tuples(st.sampled_from(["deliver", "hear", "commit"]))
)
OPERATIONS = st.one_of(
    OF_LEADERS,
    OF_LEADERS,
    st.tuples(st.sampled_from(["fence", "start", "lose", "shut_down"]), some),
    st.one_of(st.tuples(st.just("reassign"), sets), st.tuples(st.just("cancel"))),
    st.tuples(st.just("set_min_isr"), st.integers(1, 3)),
)


@dataclass
class View:
    """What a leader knows."""

    state: PartitionState
    min_isr: int
    under_way: IsrChange | None = None
    """A proposal. Its members count until the leader hears of its end, since an answer may be ahead of the configs."""

    @property
    def quorum(self) -> set[int]:
        proposed = self.under_way.isr if self.under_way else ()
        return {*self.state.isr, *(member for member, _ in proposed)}

    @property
    def can_commit(self) -> bool:
        return len(self.state.isr) >= self.state.min_isr(self.min_isr)


class Run:
    """One partition, its controller and its leaders."""

    def __init__(self, min_isr: int) -> None:
        self.cluster = Controlled(brokers=4, assignments=[[1, 2, 3]], min_isr=min_isr)
        self.metadata = self.cluster.metadata
        self.metadata.settings = lambda topic: ReplicationSettings(self.min_isr)
        self.min_isr = min_isr
        self.complete = {1, 2, 3}
        self.views = [View(self.cluster.state(), min_isr)]

    def do(self, name: str, *args: Any) -> None:
        known = len(self.cluster.reasons())
        getattr(self, name)(*args)
        after = self.cluster.state()
        if any(UNCLEAN in reason for reason in self.cluster.reasons()[known:]):
            # The last leader leads again after all candidates have lost records. Nothing more is promised.
            self.complete = set(after.isr)
            self.views = [View(after, self.min_isr)]
        candidates = set(after.isr) | set(after.elr)
        assert candidates <= self.complete, "a candidate may miss committed records"

    # ── brokers ───────────────────────────────────────────────────────────────────────────────────────────────────

    def fence(self, broker_id: int) -> None:
        self.cluster.fence(broker_id)

    def shut_down(self, broker_id: int) -> None:
        self.cluster.shut_down(broker_id)

    def start(self, broker_id: int, *, clean: bool = True) -> None:
        self.views = [view for view in self.views if view.state.leader != broker_id]
        self.cluster.start(broker_id, clean=clean)

    def lose(self, broker_id: int) -> None:
        self.complete.discard(broker_id)
        self.start(broker_id, clean=False)

    # ── leaders ───────────────────────────────────────────────────────────────────────────────────────────────────

    def hear(self) -> None:
        """The present leader replays all that the controller has decided."""
        state = self.cluster.state()
        if state.leader == NO_LEADER:
            return
        own = next((view for view in self.views if view.state.leader_epoch == state.leader_epoch), None)
        under_way = own.under_way if own and own.state.partition_epoch == state.partition_epoch else None
        others = [view for view in self.views if view is not own and state.leader not in view.quorum]
        self.views = [*others, View(state, self.min_isr, under_way)]

    def commit(self) -> None:
        for view in self.views:
            if view.can_commit:
                self.complete &= view.quorum

    def propose(self, isr: list[int]) -> None:
        state = self.cluster.state()
        for view in self.views:
            if view.state.leader_epoch == state.leader_epoch and not view.under_way:
                leader = view.state.leader
                members = [leader, *(each for each in isr if each in view.state.replicas and each != leader)]
                epochs = {broker_id: broker.epoch for broker_id, broker in self.metadata.brokers.items()}
                change = self.cluster.change(
                    members,
                    partition_epoch=view.state.partition_epoch,
                    isr=tuple((each, epochs[each]) for each in members),
                )
                view.under_way = change
                self.complete |= set(members)  # They have caught up with the leader, which is complete.

    def deliver(self) -> None:
        for view in self.views:
            if view.under_way is None:
                continue
            leader = view.state.leader
            epoch = self.metadata.brokers[leader].epoch
            (answer,) = self.cluster.run(alter_partitions, self.metadata, leader, epoch, [view.under_way])
            if isinstance(answer, errors.IneligibleReplica):
                view.under_way = None

    def alter(self, isr: list[int]) -> None:
        self.propose(isr)
        self.deliver()
        self.hear()

    # ── people ────────────────────────────────────────────────────────────────────────────────────────────────────

    def reassign(self, target: list[int]) -> None:
        self.cluster.run(reassign, self.metadata, {P0: target})

    def cancel(self) -> None:
        self.cluster.run(reassign, self.metadata, {P0: None})

    def set_min_isr(self, value: int) -> None:
        self.min_isr = value
        self.cluster.run(self.metadata.set_topic_configs, "orders", {"min.insync.replicas": str(value)})


@settings(max_examples=300)
@given(st.integers(1, 3), st.lists(OPERATIONS, max_size=40))
def test_what_leaders_commit_is_on_all_candidates(min_isr: int, operations: list[tuple[Any, ...]]) -> None:
    run = Run(min_isr)
    for name, *args in operations:
        run.do(name, *args)
