"""What holds after any sequence of the controller's operations, with late messages and lossy restarts among them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.metadata.controlled import Controlled

from ottla import errors
from ottla.metadata import Metadata
from ottla.metadata.brokers import begin_controlled_shutdown, fence_broker
from ottla.metadata.changes import UNCLEAN
from ottla.metadata.partitions import IsrChange, alter_partitions, balance_leaders, elect_leaders, elect_offline
from ottla.metadata.reassignment import reassign, reassignments
from ottla.metadata.records import from_json, to_json
from ottla.metadata.values import NO_LEADER, PartitionState, ReplicationSettings
from ottla.types import TopicPartition

BROKERS = (1, 2, 3, 4)
P0 = TopicPartition("orders", 0)
some = st.sampled_from(BROKERS)
sets = st.lists(some, unique=True, max_size=4)
OPERATIONS = st.one_of(
    st.tuples(st.sampled_from(["fence", "start", "lose", "shut_down", "fence_late", "shut_down_late"]), some),
    st.tuples(st.just("alter"), sets),
    st.tuples(st.just("alter_later"), sets),
    st.tuples(st.sampled_from(["alter_now", "elect", "elect_unclean", "elect_offline", "balance", "cancel"])),
    st.tuples(st.just("reassign"), sets),
    st.tuples(st.just("min_isr"), st.integers(1, 3)),
)


@dataclass
class Model:
    """The replicas that certainly have every committed record, by what leaders and disks can have done."""

    complete: set[int]
    lost: set[int] = field(default_factory=set)
    """Those that have lost records since something could be committed last."""
    committed_on: set[int] = field(default_factory=set)

    def changed(self, after: PartitionState, min_isr: int, *, uncleanly: bool) -> None:
        if uncleanly:
            self.complete, self.committed_on, self.lost = set(after.isr), set(), set()
        if after.leader != NO_LEADER and len(after.isr) >= after.min_isr(min_isr):
            self.complete, self.committed_on, self.lost = set(after.isr), set(after.isr), set()

    def lose(self, broker_id: int) -> None:
        self.complete.discard(broker_id)
        self.lost.add(broker_id)


class Run:
    """One partition of a cluster of four brokers, and the model beside it."""

    def __init__(self, min_isr: int, unclean: bool) -> None:
        self.cluster = Controlled(brokers=4, assignments=[[1, 2, 3]], min_isr=min_isr, unclean=unclean)
        self.model = Model({1, 2, 3}, committed_on={1, 2, 3})
        self.late: list[tuple[int, int, IsrChange]] = []
        self.epochs = {broker_id: [self.epoch(broker_id)] for broker_id in BROKERS}

    def epoch(self, broker_id: int) -> int:
        return self.cluster.metadata.brokers[broker_id].epoch

    def do(self, name: str, *args: Any) -> None:
        before, known = self.cluster.state(), len(self.cluster.reasons())
        getattr(self, name)(*args)
        after = self.cluster.state()
        uncleanly = any(UNCLEAN in reason for reason in self.cluster.reasons()[known:])
        self.model.changed(after, self.cluster.settings.min_isr, uncleanly=uncleanly)
        self.check(before, after)

    # ── operations ────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self, broker_id: int) -> None:
        self.cluster.start(broker_id)
        self.epochs[broker_id].append(self.epoch(broker_id))

    def lose(self, broker_id: int) -> None:
        self.model.lose(broker_id)
        self.cluster.start(broker_id, clean=False)
        self.epochs[broker_id].append(self.epoch(broker_id))

    def fence(self, broker_id: int) -> None:
        self.cluster.fence(broker_id)

    def fence_late(self, broker_id: int) -> None:
        for epoch in self.epochs[broker_id][:-1]:
            assert self.cluster.run(fence_broker, self.cluster.metadata, broker_id, epoch, "late") is False

    def shut_down(self, broker_id: int) -> None:
        remaining = self.cluster.run(
            begin_controlled_shutdown, self.cluster.metadata, broker_id, self.epochs[broker_id][-1]
        )
        assert (remaining == [P0]) == (self.cluster.state().leader == broker_id)

    def shut_down_late(self, broker_id: int) -> None:
        for epoch in self.epochs[broker_id][:-1]:
            with pytest.raises(errors.StaleBrokerEpoch):
                begin_controlled_shutdown(self.cluster.metadata, broker_id, epoch, now=0)

    def alter(self, isr: list[int]) -> None:
        self.alter_later(isr)
        self.alter_now()

    def alter_later(self, isr: list[int]) -> None:
        """The leader decides now. The controller may hear it after other things have happened."""
        leader = self.cluster.state().leader
        if leader == NO_LEADER:
            return
        change = self.cluster.change([leader, *(each for each in isr if each != leader)])
        self.late.append((leader, self.epoch(leader), change))

    def alter_now(self) -> None:
        for leader, epoch, change in self.late:
            before = self.cluster.state()
            try:
                answers = self.cluster.run(alter_partitions, self.cluster.metadata, leader, epoch, [change])
            except errors.StaleBrokerEpoch:
                assert epoch != self.epochs[leader][-1]
                continue
            after = self.cluster.state()
            if after == before:
                continue
            assert (change.leader_epoch, change.partition_epoch) == (before.leader_epoch, before.partition_epoch)
            for member, member_epoch in change.isr:
                if member not in before.isr:
                    assert member_epoch == self.epochs[member][-1]
                    assert self.cluster.metadata.brokers[member].is_active
            # A leader lets only complete replicas join.
            self.model.complete |= {member for member, _ in change.isr}
            self.model.changed(after, self.cluster.settings.min_isr, uncleanly=False)
            assert answers == [after] or after.leader != leader
        self.late.clear()

    def elect(self) -> None:
        self.cluster.run(elect_leaders, self.cluster.metadata, None, unclean=False)

    def elect_unclean(self) -> None:
        self.cluster.run(elect_leaders, self.cluster.metadata, [P0], unclean=True)

    def elect_offline(self) -> None:
        self.cluster.run(elect_offline, self.cluster.metadata)

    def balance(self) -> None:
        self.cluster.run(balance_leaders, self.cluster.metadata, 10)

    def reassign(self, target: list[int]) -> None:
        self.cluster.run(reassign, self.cluster.metadata, {P0: target})

    def cancel(self) -> None:
        self.cluster.run(reassign, self.cluster.metadata, {P0: None})

    def min_isr(self, value: int) -> None:
        """The settings are derived from the configs, so the operation sees the new value of the topic."""
        after = ReplicationSettings(value, self.cluster.settings.unclean)
        metadata = self.cluster.metadata
        metadata.settings = lambda topic: after
        self.cluster.run(metadata.set_topic_configs, "orders", {"min.insync.replicas": str(value)})
        self.cluster.settings = after
        metadata.settings = lambda topic: self.cluster.settings

    # ── what holds ────────────────────────────────────────────────────────────────────────────────────────────────

    def check(self, before: PartitionState, after: PartitionState) -> None:
        self.check_form(before, after)
        candidates = set(after.isr) | set(after.elr)
        assert candidates <= self.model.complete, "a candidate may miss committed records"
        if not candidates:
            assert self.model.committed_on <= self.model.lost, "a replica with all records was forgotten"

    def check_form(self, before: PartitionState, after: PartitionState) -> None:
        brokers = self.cluster.metadata.brokers
        assert after.leader == NO_LEADER or after.leader in after.isr
        assert set(after.isr) <= set(after.replicas)
        assert set(after.elr) <= set(after.replicas) - set(after.isr)
        assert set(after.adding) | set(after.removing) <= set(after.replicas)
        assert len(set(after.replicas)) == len(after.replicas) > 0
        assert not after.elr or len(after.isr) < after.min_isr(self.cluster.settings.min_isr)
        assert after.leader_epoch >= before.leader_epoch
        assert after.partition_epoch > before.partition_epoch or after == before
        if (after.leader, after.replicas) != (before.leader, before.replicas) and before.leader != NO_LEADER:
            is_same = after.leader == before.leader and set(before.replicas) <= set(after.replicas)
            assert after.leader_epoch > before.leader_epoch or is_same
        for member in after.isr:
            assert brokers[member].is_active or (after.leader == member and not brokers[member].is_fenced)
        assert (P0 in reassignments(self.cluster.metadata)) == after.is_reassigning
        if after.leader == NO_LEADER:
            assert not after.isr
            assert not any(brokers[each].is_active for each in after.elr), "an eligible broker does not lead"

    def check_replay(self) -> None:
        """Another broker that replays the log, and one that loads a snapshot, have the same state."""
        follower, loaded = Metadata(), Metadata()
        for record in self.cluster.records:
            follower.replay(record)
        for record in self.cluster.metadata.snapshot():
            loaded.replay(from_json(json.loads(json.dumps(to_json(record)))))
        assert image(follower) == image(loaded) == image(self.cluster.metadata)


def image(metadata: Metadata) -> dict[str, Any]:
    return {name: value for name, value in vars(metadata).items() if name != "settings"}


@settings(max_examples=200)
@given(st.integers(1, 3), st.booleans(), st.lists(OPERATIONS, max_size=40))
def test_leaders_have_every_committed_record(min_isr: int, unclean: bool, operations: list[tuple[Any, ...]]) -> None:
    run = Run(min_isr, unclean)
    for name, *args in operations:
        run.do(name, *args)
    run.check_replay()
