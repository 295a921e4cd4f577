"""The rebalance under way of a consumer group: what is noted of it, and when it is written."""

from __future__ import annotations

from uuid import UUID

from ottla.coordinator import history
from ottla.coordinator import records as r
from ottla.coordinator.config import GroupConfig
from ottla.coordinator.consumer.history import GAVE_UP, TOOK, RebalanceHistory
from ottla.coordinator.consumer.logged import LoggedGroup
from ottla.coordinator.consumer.member import Member
from ottla.coordinator.consumer.records import RecordWriter
from ottla.coordinator.consumer.topics import KnownTopics
from ottla.coordinator.effects import Effects
from ottla.coordinator.group import Shard
from unit.coordinator.consumer_context import ORDERS, topics

JOINED = r.Trigger(history.MEMBER_JOINED, 1_000, Member("b").who)


def orders(*numbers: int) -> dict[UUID, frozenset[int]]:
    return {ORDERS: frozenset(numbers)}


class Group:
    """A group in epoch 1 whose member ``a`` has all of orders."""

    def __init__(self) -> None:
        self.topics = topics(orders=2)
        self.shard = Shard(GroupConfig(), lambda: "id", lambda: self.topics, lambda _: None)
        self.logged = LoggedGroup("g")
        self.known = KnownTopics()
        self.history = RebalanceHistory(self.shard, self.logged, self.known, "uniform")
        fx = self.fx(0)
        writer = RecordWriter("g")
        writer.epoch(1, 0, fx)
        writer.new_target({"a": orders(0, 1)}, 1, fx)
        self.put(Member("a", subscribed_topic_names=("orders",), member_epoch=1, assigned=orders(0, 1)), fx)

    def fx(self, now: int) -> Effects:
        return Effects(now=now)

    def put(self, member: Member, fx: Effects) -> None:
        RecordWriter("g").member(member, fx)
        RecordWriter("g").current(member, fx)
        self.replay(fx)

    def replay(self, fx: Effects) -> list[r.HistoryValue]:
        """Replay what was written; return the history in it."""
        written = []
        for key, value in fx.records:
            if isinstance(key, r.HistoryKey) and isinstance(value, r.HistoryValue):
                self.shard.histories.replay(key, value)
                written.append(value)
            else:
                self.logged.replay(key, value)
        fx.records.clear()
        return written

    def tell(self, now: int) -> list[r.HistoryValue]:
        fx = self.fx(now)
        self.history.tell(2, {"a": orders(0), "b": orders(1)}, fx)
        return self.replay(fx)

    def finish(self, member: Member, now: int) -> list[r.HistoryValue]:
        fx = self.fx(now)
        self.history.finish_if_reconciled(member, 2, {"a": orders(0), "b": orders(1)}, fx)
        return self.replay(fx)


def test_what_is_known_is_written_once_for_each_trigger() -> None:
    group = Group()
    assert group.tell(1_000) == []
    group.history.trigger(JOINED)
    (told,) = group.tell(1_000)
    assert (told.outcome, told.generation, told.triggers) == (history.UNDER_WAY, 2, (JOINED,))
    assert told.moves == (r.PartitionMove("orders", 1, "a", "b"),)
    assert group.tell(1_001) == []
    group.history.trigger(r.Trigger(history.MEMBER_LEFT, 1_500))
    (again,) = group.tell(1_500)
    assert (again.number, len(again.triggers), again.started_at) == (told.number, 2, 1_000)


def test_the_last_member_ends_the_rebalance() -> None:
    group = Group()
    group.history.trigger(JOINED)
    group.tell(1_000)
    b = Member("b", member_epoch=2, assigned=orders(1))
    group.put(b, group.fx(1_100))
    assert group.finish(b, 1_100) == []  # The other one is in its old epoch.
    a = group.logged.members["a"]._replace(member_epoch=2, assigned=orders(0))
    (ended,) = group.finish(a, 1_200)
    assert (ended.outcome, ended.members, ended.partitions_moved, ended.late) == (history.STABLE, 2, 1, ())
    assert group.history.rebalance is None
    assert group.shard.histories.under_way("g") is None


def test_the_last_to_give_up_and_the_last_to_take_are_named_if_others_waited() -> None:
    group = Group()
    group.history.trigger(JOINED)
    a = group.logged.members["a"]
    group.history.gave_up(a, group.fx(3_000))
    group.put(a._replace(member_epoch=2, assigned=orders(0)), group.fx(3_000))
    (ended,) = group.finish(Member("b", member_epoch=2, assigned=orders(1)), 9_000)
    assert [(late.who.member_id, late.waited, late.did) for late in ended.late] == [
        ("a", 2_000, GAVE_UP),
        ("b", 8_000, TOOK),
    ]


def test_a_restart_continues_from_the_log() -> None:
    group = Group()
    group.history.trigger(JOINED)
    (told,) = group.tell(1_000)
    fx = group.fx(1_000)
    RecordWriter("g").new_target({"a": orders(0), "b": orders(1)}, 2, fx)
    group.replay(fx)
    group.history.resume()
    assert group.history.rebalance is not None
    assert group.history.rebalance.is_told
    assert group.history.rebalance.target == {"a": orders(0, 1)}
    group.put(group.logged.members["a"]._replace(member_epoch=2, assigned=orders(0)), group.fx(2_000))
    (ended,) = group.finish(Member("b", member_epoch=2, assigned=orders(1)), 2_000)
    assert (ended.number, ended.triggers, ended.moves) == (told.number, told.triggers, told.moves)


def test_triggers_that_were_not_written_are_forgotten() -> None:
    group = Group()
    group.history.trigger(JOINED)
    group.history.resume()
    assert group.history.rebalance is None


def test_members_that_reconcile_for_no_known_reason_have_lost_it() -> None:
    group = Group()
    group.history.explain_loss(group.fx(1_000))
    assert group.history.rebalance is None
    fx = group.fx(1_000)
    RecordWriter("g").epoch(2, 0, fx)
    group.replay(fx)
    group.history.explain_loss(group.fx(1_000))
    (told,) = group.tell(1_000)
    assert [trigger.kind for trigger in told.triggers] == [history.CAUSE_LOST]


def test_a_static_member_that_returns_is_a_history_of_its_own_unless_one_is_under_way() -> None:
    group, fx = Group(), Effects(now=1_000)
    group.history.static_member_returned(group.logged.members["a"], 1, fx)
    (unchanged,) = group.replay(fx)
    assert (unchanged.outcome, unchanged.partitions_moved, unchanged.partitions_kept) == (history.UNCHANGED, 0, 2)
    group.history.trigger(JOINED)
    group.history.static_member_returned(group.logged.members["a"], 1, fx)
    assert fx.records == []
    (told,) = group.tell(1_000)
    assert [trigger.kind for trigger in told.triggers] == [history.MEMBER_JOINED, history.STATIC_MEMBER_REPLACED]


def test_partitions_of_a_deleted_topic_have_its_former_name() -> None:
    group = Group()
    group.known.remember(["orders"], group.topics, 1)
    group.history.trigger(JOINED)
    group.topics = {}
    fx = group.fx(1_000)
    group.history.tell(2, {"a": {}}, fx)
    (told,) = group.replay(fx)
    assert {move.topic for move in told.moves} == {"orders"}
    group.history.rebalance = None
    group.history.trigger(JOINED)
    group.history.tell(2, {"a": {}}, fx)
    assert {move.topic for move in group.replay(fx)[0].moves} == {"orders (deleted)"}


def test_the_end_of_an_empty_group_is_written() -> None:
    group, fx = Group(), Effects(now=1_000)
    group.history.finish_empty(2, fx)
    assert fx.records == []
    group.history.trigger(JOINED)
    group.history.finish_empty(2, fx)
    (ended,) = group.replay(fx)
    assert (ended.outcome, ended.members) == (history.EMPTY, 0)
