"""Every rebalance of a consumer group records why it happened, who caused it, how long it took and what moved."""

from __future__ import annotations

from typing import Any

from ottla.coordinator import records as r
from ottla.coordinator.group import TopicInfo
from ottla.coordinator.serde import decode
from ottla.machine import Outcome
from unit.coordinator.consumer_context import ConsumerContext, having, topic_id, topics
from unit.coordinator.group_context import GROUP, START


def who(member_id: str, instance_id: str | None = None) -> r.Who:
    return r.Who(member_id, instance_id, "client", "/127.0.0.1")


def last(context: ConsumerContext) -> r.HistoryValue:
    return context.rebalances()[-1]


def triggers(value: Any) -> list[tuple[str, str | None]]:
    return [(trigger.kind, trigger.who and trigger.who.member_id) for trigger in value.triggers]


def test_a_join_is_told_with_what_moved_and_how_long_it_took() -> None:
    context = ConsumerContext()
    context.enroll("a")
    context.now += 1_000
    context.enroll("b")
    context.now += 500
    context.beat("a", 1)
    context.now += 500
    context.beat("a", 1, topic_partitions=having(orders=[0, 1, 2]))
    assert context.under_way().started_at == START + 1_000
    context.beat("b", 2)
    first, second = context.rebalances()
    assert (first.number, first.generation, first.members, first.partitions_moved) == (0, 1, 1, 6)
    assert second == r.HistoryValue(
        number=1,
        generation=2,
        outcome="stable",
        protocol="uniform",
        started_at=START + 1_000,
        joined_at=-1,
        ended_at=START + 2_000,
        members=2,
        leader="",
        triggers=(r.Trigger("member joined", START + 1_000, who("b")),),
        triggers_left_out=0,
        late=(r.Latecomer(who("a"), 1_000, removed=False, did="gave up its partitions"),),
        partitions_kept=3,
        partitions_moved=3,
        moves=tuple(r.PartitionMove("orders", number, "a", "b") for number in (3, 4, 5)),
        revoked_at=START + 2_000,
    )
    assert context.all_under_way() == []


def test_what_happens_while_members_are_on_their_way_is_one_rebalance() -> None:
    context = ConsumerContext()
    for member in ("a", "b", "c"):
        context.enroll(member)
    context.settle_consumers()
    assert triggers(last(context)) == [("member joined", "b"), ("member joined", "c")]
    assert len(context.rebalances()) == 2


def test_a_rebalance_is_told_from_its_first_trigger_on() -> None:
    context = ConsumerContext()
    context.enroll("a")
    context.enroll("b")
    value = context.under_way()
    assert (value.number, value.generation, triggers(value)) == (1, 2, [("member joined", "b")])
    assert (value.partitions_kept, value.partitions_moved) == (3, 3)
    context.enroll("c")
    assert triggers(context.under_way()) == [("member joined", "b"), ("member joined", "c")]
    context.settle_consumers()
    assert context.all_under_way() == []


def test_the_last_to_leave_ends_the_rebalance_with_an_empty_group() -> None:
    context = ConsumerContext()
    context.enroll("a")
    context.beat("a", -1)
    value = last(context)
    assert (value.outcome, value.generation, value.members, value.partitions_moved) == ("empty", 2, 0, 6)
    assert triggers(value) == [("member left", "a")]


def test_each_reason_has_its_name() -> None:
    context = ConsumerContext()
    context.enroll("a", "orders", "users")
    context.enroll("x-1", instance_id="x")
    context.settle_consumers()
    seen = []

    def settle() -> None:
        context.settle_consumers()
        seen.extend(triggers(last(context)))

    context.beat("a", 2, subscribed_topic_names=("orders",))
    settle()
    context.grow(orders=8)
    settle()
    context.drop_topic("orders")
    settle()
    context.beat("x-1", -2, instance_id="x")
    context.enroll("x-2", "users", instance_id="x")
    settle()
    context.now += 40_000
    context.beat("a", context.consumers.group_epoch)
    context.sleep(5_000)
    settle()
    assert seen == [
        ("subscription changed", "a"),
        ("partitions added", None),
        ("topic metadata changed", None),
        ("static member replaced", "x-2"),
        ("session expired", "x-2"),
    ]


def test_topics_that_changed_are_named() -> None:
    context = ConsumerContext()
    names = ("orders", "users", *(f"new-{number}" for number in range(7)))
    context.enroll("a", *names)
    context.settle_consumers()

    def reason() -> str:
        context.beat("a", context.consumers.group_epoch)
        context.settle_consumers()
        (trigger,) = last(context).triggers
        assert trigger.who is None
        return trigger.reason

    context.grow(orders=8)
    assert reason() == "orders has 8 partitions instead of 6"
    context.drop_topic("users")
    assert reason() == "users was deleted"
    context.topics["orders"] = TopicInfo(topic_id(60), 2)
    context.topics["users"] = TopicInfo(topic_id(61), 2)
    context.run(context.coordinator.topics_changed, ["orders", "users"], created=True)
    assert reason() == "orders was deleted and created again; users is new"
    for number, name in enumerate(names[2:]):
        context.topics[name] = TopicInfo(topic_id(70 + number), 1)
    context.run(context.coordinator.topics_changed, names[2:], created=True)
    assert reason() == "; ".join(f"new-{number} is new" for number in range(5)) + "; 2 more topics changed"


def test_a_topic_that_only_those_read_who_left_has_not_gone() -> None:
    context = ConsumerContext()
    context.enroll("a")
    context.enroll("b", "users")
    context.settle_consumers()
    context.beat("b", -1)
    context.settle_consumers()
    context.grow(orders=8)
    context.settle_consumers()
    (trigger,) = last(context).triggers
    assert (trigger.kind, trigger.reason) == ("partitions added", "orders has 8 partitions instead of 6")


def test_topics_are_named_also_if_it_could_not_be_written_at_first() -> None:
    context = ConsumerContext()
    context.enroll("a", "orders", "users")
    context.settle_consumers()
    context.drop_topic("users")
    with context.losing():
        context.beat("a", context.consumers.group_epoch)
    context.settle_consumers()
    (trigger,) = last(context).triggers
    assert (trigger.kind, trigger.reason) == ("topic metadata changed", "users was deleted")


def test_topics_that_a_pattern_begins_to_match_are_named() -> None:
    context = ConsumerContext()
    context.enroll("a", subscribed_topic_names=(), subscribed_topic_regex="new-.*|orders")
    context.sleep(0)
    context.settle_consumers()
    context.sleep(20_000)
    context.topics["new-1"] = TopicInfo(topic_id(70), 1)
    context.run(context.coordinator.topics_changed, ["new-1"], created=True)
    context.beat("a", context.consumers.group_epoch)
    context.sleep(0)
    context.settle_consumers()
    (trigger,) = last(context).triggers
    assert (trigger.kind, trigger.reason) == ("topic metadata changed", "new-1 is new")


def test_partitions_of_a_topic_that_was_deleted_are_told_by_its_name() -> None:
    context = ConsumerContext()
    context.enroll("a", "orders", "users")
    context.drop_topic("users")
    context.settle_consumers()
    assert context.rebalances()[-1].moves == tuple(
        r.PartitionMove("users (deleted)", number, "a", None) for number in range(3)
    )
    context.topics["orders"] = TopicInfo(topic_id(50), 1)
    context.run(context.coordinator.topics_changed, ["orders"], created=True)
    context.settle_consumers()
    told = {(move.topic, move.source, move.target) for move in context.rebalances()[-1].moves}
    assert told == {("orders (deleted)", "a", None), ("orders", None, "a")}


def test_a_member_that_does_not_give_up_its_partitions_is_named_as_late() -> None:
    context = ConsumerContext()
    context.enroll("a", rebalance_timeout=10_000)
    context.enroll("b")
    context.beat("a", 1)
    context.sleep(10_000)
    context.settle_consumers()
    value = last(context)
    assert triggers(value) == [("member joined", "b"), ("revocation timed out", "a")]
    assert value.late == (r.Latecomer(who("a"), 10_000, removed=True),)


def test_an_expression_that_is_resolved_names_who_brought_it() -> None:
    context = ConsumerContext()
    context.enroll("a")
    context.enroll("b", subscribed_topic_names=None, subscribed_topic_regex="us.*")
    context.sleep(0)
    context.settle_consumers()
    assert triggers(last(context)) == [("member joined", "b")]


def test_the_last_to_give_up_and_the_last_to_take_are_named_with_when_that_was() -> None:
    context = ConsumerContext()
    for member in ("a", "b"):
        context.enroll(member)
    context.settle_consumers()
    began = context.now
    context.enroll("c")
    context.beat("a", 2)
    context.beat("b", 2)
    context.now += 2_000
    context.beat("b", 2, topic_partitions=having(orders=[3, 4]))
    context.now += 2_000
    context.beat("a", 2, topic_partitions=having(orders=[0, 1]))
    context.now += 3_000
    context.beat("c", 3)
    value = last(context)
    assert (value.started_at, value.revoked_at, value.ended_at) == (began, began + 4_000, began + 7_000)
    assert value.late == (
        r.Latecomer(who("a"), 4_000, removed=False, did="gave up its partitions"),
        r.Latecomer(who("c"), 7_000, removed=False, did="took its partitions"),
    )


def test_a_static_member_that_returned_is_told_though_nothing_moved() -> None:
    context = ConsumerContext()
    context.enroll("a")
    context.enroll("x-1", instance_id="x")
    context.settle_consumers()
    context.beat("x-1", -2, instance_id="x")
    context.now += 5_000
    call = context.enroll("x-2", instance_id="x")
    (value,) = call.history
    assert value is not None
    assert (value.outcome, value.generation, value.number) == ("unchanged", 2, 2)
    assert value.triggers == (r.Trigger("static member replaced", context.now, who("x-2", "x")),)
    assert (value.members, value.partitions_kept, value.partitions_moved) == (2, 6, 0)


def test_a_static_member_that_returned_during_a_rebalance_is_one_of_its_reasons() -> None:
    context = ConsumerContext()
    context.enroll("x-1", instance_id="x")
    context.beat("x-1", -2, instance_id="x")
    context.enroll("b")
    context.enroll("x-2", instance_id="x")
    assert triggers(context.under_way()) == [("member joined", "b"), ("static member replaced", "x-2")]


def test_a_rebalance_under_way_at_a_restart_keeps_its_reason_its_beginning_and_what_moved() -> None:
    context = ConsumerContext()
    context.enroll("a")
    context.settle_consumers()
    began = context.now
    context.enroll("b")
    context.now += 2_000
    context.restart()
    context.settle_consumers()
    value = last(context)
    assert (value.number, value.outcome, value.generation) == (1, "stable", 2)
    assert (value.started_at, value.ended_at, triggers(value)) == (began, began + 2_000, [("member joined", "b")])
    assert value.moves == tuple(r.PartitionMove("orders", number, "a", "b") for number in (3, 4, 5))
    assert (value.partitions_kept, value.partitions_moved) == (3, 3)


def test_a_member_that_was_fenced_before_a_restart_is_named_after_it() -> None:
    context = ConsumerContext()
    context.enroll("a")
    context.enroll("b")
    context.settle_consumers()
    context.sleep(40_000)
    context.beat("a", 2)
    context.sleep(10_000)
    assert list(context.consumers.members) == ["a"]
    context.restart()
    context.settle_consumers()
    assert triggers(last(context)) == [("session expired", "b")]
    assert last(context).moves == tuple(r.PartitionMove("orders", number, "b", "a") for number in (3, 4, 5))


def test_what_moved_twice_before_a_restart_is_measured_from_its_first_owner() -> None:
    context = ConsumerContext(topics=topics(orders=300))
    context.enroll("a")
    context.settle_consumers()
    context.enroll("b")
    context.enroll("c")
    context.restart()
    context.settle_consumers()
    value = last(context)
    assert triggers(value) == [("member joined", "b"), ("member joined", "c")]
    assert (value.partitions_kept, value.partitions_moved, len(value.moves)) == (100, 200, 100)
    assert {move.source for move in value.moves} == {"a"}


def test_members_on_their_way_in_a_log_that_does_not_say_why_are_told_as_a_cause_that_is_lost() -> None:
    """As Apache Kafka writes it, which has no history."""
    context = ConsumerContext()
    context.enroll("a")
    context.settle_consumers()
    context.enroll("b")
    context.log = [(key, value) for key, value in context.log if not isinstance(decode(key, value).key, r.HistoryKey)]
    context.restart()
    context.settle_consumers()
    assert triggers(last(context)) == [("cause lost at a restart", None)]
    assert (last(context).number, last(context).generation) == (0, 2)


def test_a_group_at_rest_or_with_a_static_member_that_is_away_has_lost_no_cause() -> None:
    context = ConsumerContext()
    context.enroll("a")
    context.enroll("x-1", instance_id="x")
    context.settle_consumers()
    context.beat("x-1", -2, instance_id="x")
    before = context.rebalances()
    context.restart()
    context.settle_consumers()
    assert (context.rebalances(), context.all_under_way()) == (before, [])


def test_a_rebalance_that_could_not_be_written_at_its_end_is_told_when_it_can() -> None:
    context = ConsumerContext()
    context.enroll("a")
    context.enroll("b")
    context.beat("a", 1)
    context.beat("a", 1, topic_partitions=having(orders=[0, 1, 2]))
    with context.losing():
        context.beat("b", 2)
    context.beat("b", 2)
    assert triggers(last(context)) == [("member joined", "b")]


def test_a_static_member_that_returns_last_ends_the_rebalance() -> None:
    context = ConsumerContext()
    context.enroll("a")
    context.enroll("x-1", instance_id="x")
    context.settle_consumers()
    context.grow(orders=8)
    context.beat("a", context.consumers.group_epoch)
    context.beat("x-1", -2, instance_id="x")
    context.enroll("x-2", instance_id="x")
    assert (context.described().group_state, context.all_under_way()) == ("Stable", [])


def test_an_end_that_is_the_only_lost_record_is_written_again() -> None:
    context = ConsumerContext()
    context.enroll("a")
    context.enroll("b")
    context.beat("a", 1)
    end = r.CoordinatorRecord(r.HistoryKey(GROUP, 0), None)
    context.consumers.history.rebalance = None  # Its end was decided.
    context.coordinator.append_failed(Outcome((end,), None), now=context.now)
    context.settle_consumers()
    assert context.all_under_way() == []


def test_a_storm_of_triggers_is_not_written_again_for_each_of_them() -> None:
    context = ConsumerContext()
    for number in range(40):
        context.enroll(f"m{number:02}")
    written = [decode(key, value).key for key, value in context.log]
    assert sum(isinstance(key, r.HistoryKey) for key in written) <= 25
    context.settle_consumers()
    value = last(context)
    assert (len(value.triggers), value.triggers_left_out) == (20, 19)


def test_the_history_is_there_after_a_restart_and_after_a_migration_and_goes_with_the_group() -> None:
    context = ConsumerContext()
    context.enroll("a")
    context.beat("a", -1)
    before = context.rebalances()
    context.restart()
    assert context.rebalances() == before
    assert len(before) == 2
    context.run(context.coordinator.delete_groups, ["billing"])
    context.enroll("a")
    assert [value.number for value in context.rebalances()] == [0]


def test_the_history_goes_on_when_a_classic_member_joins_an_empty_consumer_group() -> None:
    context = ConsumerContext()
    context.enroll("a")
    context.beat("a", -1)
    context.stable("b")
    assert [(value.number, value.outcome) for value in context.rebalances()] == [
        (0, "stable"),
        (1, "empty"),
        (2, "stable"),
    ]


def test_a_member_that_changes_nothing_is_no_rebalance() -> None:
    context = ConsumerContext()
    context.enroll("a")
    context.beat("a", 1)
    context.beat("a", 1, rack_id="r1")
    assert len(context.rebalances()) == 1
