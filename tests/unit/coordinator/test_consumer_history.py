"""4.11 for consumer groups: every rebalance keeps its reason, who caused it, how long it took and what moved."""

from __future__ import annotations

from typing import Any

from ottla.coordinator import records as r
from unit.coordinator.consumer_context import ConsumerContext, having
from unit.coordinator.group_context import START


def who(member_id: str, instance_id: str | None = None) -> r.Who:
    return r.Who(member_id, instance_id, "client", "/127.0.0.1")


def last(context: ConsumerContext) -> r.HistoryValue:
    return context.explain().rebalances[-1]


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
    assert context.explain().since == START + 1_000
    context.beat("b", 2)
    first, second = context.explain().rebalances
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
        late=(),
        partitions_kept=3,
        partitions_moved=3,
        moves=tuple(r.PartitionMove("orders", number, "a", "b") for number in (3, 4, 5)),
    )
    assert context.explain().since is None


def test_what_happens_while_members_are_on_their_way_is_one_rebalance() -> None:
    context = ConsumerContext()
    for member in ("a", "b", "c"):
        context.enroll(member)
    context.settle_consumers()
    assert triggers(last(context)) == [("member joined", "b"), ("member joined", "c")]
    assert len(context.explain().rebalances) == 2


def test_members_that_are_waited_for_are_named() -> None:
    context = ConsumerContext()
    context.enroll("a")
    context.enroll("b")
    explanation = context.explain()
    assert (explanation.state, explanation.waiting_for) == ("Reconciling", (who("a"),))
    assert triggers(explanation) == [("member joined", "b")]


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


def test_the_history_is_there_after_a_restart_and_after_a_migration_and_goes_with_the_group() -> None:
    context = ConsumerContext()
    context.enroll("a")
    context.beat("a", -1)
    before = context.explain().rebalances
    context.restart()
    assert context.explain().rebalances == before
    assert len(before) == 2
    context.run(context.coordinator.delete_groups, ["billing"])
    context.enroll("a")
    assert [value.number for value in context.explain().rebalances] == [0]


def test_the_history_goes_on_when_a_classic_member_joins_an_empty_consumer_group() -> None:
    context = ConsumerContext()
    context.enroll("a")
    context.beat("a", -1)
    context.stable("b")
    assert [(value.number, value.outcome) for value in context.explain().rebalances] == [
        (0, "stable"),
        (1, "empty"),
        (2, "stable"),
    ]


def test_a_member_that_changes_nothing_is_no_rebalance() -> None:
    context = ConsumerContext()
    context.enroll("a")
    context.beat("a", 1)
    context.beat("a", 1, rack_id="r1")
    assert len(context.explain().rebalances) == 1
