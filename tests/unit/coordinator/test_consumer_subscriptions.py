"""The coordinator resolves subscriptions by regular expression right after the heartbeat that brings them."""

from __future__ import annotations

from ottla import errors
from ottla.coordinator import records as r
from ottla.coordinator.config import GroupConfig
from ottla.coordinator.consumer.topics import metadata_hash
from ottla.coordinator.serde import encode
from unit.coordinator.consumer_context import (
    REBALANCE,
    SESSION,
    ConsumerContext,
    current_record,
    epoch_record,
    having,
    member_record,
    session_timer,
    target_epoch_record,
    target_record,
)
from unit.coordinator.group_context import GROUP, START, Call

REGEX_TIMER = ("consumer-regex", GROUP)


def regex_record(regex: str, topics: tuple[str, ...] | None, at: int = START, version: int = 0) -> r.CoordinatorRecord:
    value = None if topics is None else r.ConsumerGroupRegularExpressionValue(topics, version, at)
    return r.CoordinatorRecord(r.ConsumerGroupRegularExpressionKey(GROUP, regex), value)


def enroll_by_regex(context: ConsumerContext, member_id: str, regex: str) -> Call:
    return context.enroll(member_id, subscribed_topic_names=None, subscribed_topic_regex=regex)


def test_a_new_expression_is_resolved_after_the_join_and_assigned_at_the_next_heartbeat() -> None:
    context = ConsumerContext()
    call = enroll_by_regex(context, "a", "or.*")
    assert (call.response.member_epoch, call.response.assignment) == (1, ())
    assert call.records == [
        member_record("a", subscribed_topic_names=(), subscribed_topic_regex="or.*"),
        epoch_record(1, 0),
        target_record("a"),
        target_epoch_record(1),
        current_record("a", 1, 0),
    ]
    assert call.timers == {REGEX_TIMER: START, session_timer("a"): START + SESSION}

    [resolved] = context.sleep(0)
    assert resolved.key == REGEX_TIMER
    assert resolved.records == [
        regex_record("or.*", ("orders",)),
        epoch_record(2, metadata_hash(["orders"], context.topics)),
    ]
    call = context.beat("a", 1)
    assert (call.response.member_epoch, call.response.assignment) == (2, having(orders=range(6)))


def test_an_expression_that_is_not_valid_in_re2_is_rejected() -> None:
    context = ConsumerContext()
    call = enroll_by_regex(context, "a", "(?=or)")
    assert (call.error_code, call.outcome.records) == (errors.InvalidRegularExpression.code, ())
    assert call.response.error_message == (
        "SubscribedTopicRegex `(?=or)` is not a valid regular expression: invalid perl operator: (?=."
    )


def test_an_expression_that_would_block_the_broker_is_rejected_with_what_to_do() -> None:
    context = ConsumerContext()
    call = enroll_by_regex(context, "a", "(?:(?:.?){70}){70}")
    assert (call.error_code, call.outcome.records) == (errors.InvalidRegularExpression.code, ())
    assert call.response.error_message == (
        "SubscribedTopicRegex `(?:(?:.?){70}){70}` is not a valid regular expression: invalid repetition size: {70} "
        "(counts, multiplied if nested, may be at most 1,000; in {n,m} n may not exceed m)."
    )


def test_an_expression_in_the_log_that_is_too_large_for_this_broker_stays_what_it_was() -> None:
    context, regex = ConsumerContext(), "(?:.?){1000}" * 20
    context.log = [
        encode(record)
        for record in (
            member_record("a", subscribed_topic_names=(), subscribed_topic_regex=regex),
            epoch_record(1, 0),
            regex_record(regex, ("orders",), at=START - 20_000),
        )
    ]
    context.restart()
    context.beat("a", 0, rebalance_timeout=REBALANCE, subscribed_topic_names=(), topic_partitions=())
    [resolved] = context.sleep(0)
    assert resolved.records[0] == regex_record(regex, ("orders",), version=START)


def test_a_second_member_with_the_same_expression_is_assigned_at_once() -> None:
    context = ConsumerContext()
    enroll_by_regex(context, "a", "or.*")
    context.sleep(0)
    call = enroll_by_regex(context, "b", "or.*")
    assert call.response.member_epoch == 3
    assert REGEX_TIMER not in call.timers
    context.settle_consumers()
    assert context.assigned() == {"a": {"orders": [0, 2, 4]}, "b": {"orders": [1, 3, 5]}}


def test_a_new_topic_that_matches_is_found() -> None:
    context = ConsumerContext()
    enroll_by_regex(context, "a", ".*s")
    context.sleep(0)
    context.settle_consumers()
    context.sleep(20_000)
    context.grow(prices=2)
    asked = context.beat("a", 2)
    assert asked.timers == {REGEX_TIMER: START + 20_000}
    [resolved] = context.sleep(0)
    assert resolved.records == [
        regex_record(".*s", ("orders", "prices", "users"), at=START + 20_000, version=START + 20_000),
        epoch_record(3, metadata_hash(["orders", "prices", "users"], context.topics)),
    ]
    assert having(prices=[0, 1])[0] in context.beat("a", 2).response.assignment


def test_a_new_topic_that_does_not_match_raises_no_epoch() -> None:
    context = ConsumerContext()
    enroll_by_regex(context, "a", "or.*")
    context.sleep(20_000)
    context.grow(prices=2)
    context.beat("a", 1)
    [resolved] = context.sleep(0)
    assert resolved.records == [regex_record("or.*", ("orders",), at=START + 20_000, version=START + 20_000)]


def test_expressions_are_resolved_at_most_every_ten_seconds() -> None:
    context = ConsumerContext()
    enroll_by_regex(context, "a", "or.*")
    context.sleep(5_000)
    context.beat("a", 1)
    assert REGEX_TIMER not in enroll_by_regex(context, "b", "us.*").timers
    context.now = START + 10_000
    assert REGEX_TIMER not in context.beat("b", 2).timers
    context.now += 1
    assert context.beat("b", 2).timers[REGEX_TIMER] == START + 10_001
    [resolved] = context.sleep(0)
    assert resolved.records[:2] == [
        regex_record("or.*", ("orders",), at=START + 10_001),
        regex_record("us.*", ("users",), at=START + 10_001),
    ]
    context.settle_consumers()
    assert context.assigned() == {"a": {"orders": [0, 1, 2, 3, 4, 5]}, "b": {"users": [0, 1, 2]}}


def test_expressions_are_resolved_again_after_the_refresh_interval() -> None:
    context = ConsumerContext(GroupConfig(group_consumer_regex_refresh_interval_ms=60_000))
    enroll_by_regex(context, "a", "or.*")
    context.sleep(0)
    context.settle_consumers()
    context.now = START + 30_000
    context.beat("a", 2)
    context.now = START + 60_000
    assert context.beat("a", 2).timers == {}
    context.now += 1
    assert context.beat("a", 2).timers == {REGEX_TIMER: START + 60_001}


def test_expressions_are_resolved_again_after_a_restart() -> None:
    context = ConsumerContext()
    enroll_by_regex(context, "a", ".*s")
    context.sleep(0)
    context.settle_consumers()
    context.grow(prices=2)
    context.now += 30_000
    context.restart()
    assert context.beat("a", 2).timers == {REGEX_TIMER: START + 30_000}
    context.sleep(0)
    assert having(prices=[0, 1])[0] in context.beat("a", 2).response.assignment


def test_an_expression_that_nobody_has_any_more_is_forgotten() -> None:
    context = ConsumerContext()
    enroll_by_regex(context, "a", "or.*")
    enroll_by_regex(context, "b", "or.*")
    context.sleep(0)
    context.settle_consumers()
    call = context.beat(
        "b", context.consumers.group_epoch, subscribed_topic_names=("users",), subscribed_topic_regex=""
    )
    assert regex_record("or.*", None) not in call.records
    assert regex_record("or.*", None) not in context.beat("b", -1).records
    context.settle_consumers()
    epoch = context.consumers.group_epoch
    call = context.beat("a", epoch, subscribed_topic_names=("users",), subscribed_topic_regex="")
    assert call.records[:3] == [
        member_record("a", "users"),
        regex_record("or.*", None),
        epoch_record(epoch + 1, metadata_hash(["users"], context.topics)),
    ]
    assert context.consumers.logged.subscriptions.resolved == {}


def test_the_last_member_takes_its_expression_with_it() -> None:
    context = ConsumerContext()
    enroll_by_regex(context, "a", "or.*")
    context.sleep(0)
    assert regex_record("or.*", None) in context.beat("a", -1).records


def test_what_a_member_had_by_another_expression_goes_to_the_others_even_if_the_new_one_matches_nothing() -> None:
    context = ConsumerContext()
    enroll_by_regex(context, "a", "or.*")
    context.sleep(0)
    enroll_by_regex(context, "b", "or.*")
    context.settle_consumers()
    context.beat("a", 3, subscribed_topic_regex="nothing")
    context.now += 10_001
    context.settle_consumers()
    context.sleep(0)
    context.settle_consumers()
    assert context.assigned() == {"a": {}, "b": {"orders": [0, 1, 2, 3, 4, 5]}}


def test_names_and_expressions_go_together() -> None:
    context = ConsumerContext()
    context.enroll("a", "users", subscribed_topic_regex="or.*")
    context.sleep(0)
    context.settle_consumers()
    assert context.assigned() == {"a": {"orders": [0, 1, 2, 3, 4, 5], "users": [0, 1, 2]}}
    assert context.consumers.is_subscribed("orders")
    assert context.consumers.is_subscribed("users")
    assert not context.consumers.is_subscribed("prices")


def test_a_resolution_that_was_not_written_is_asked_for_again() -> None:
    context = ConsumerContext()
    enroll_by_regex(context, "a", "or.*")
    next(context.timers.due(now=context.now))  # The log did not take the records of it.
    context.now += 10_000
    assert REGEX_TIMER not in context.beat("a", 1).timers
    context.now += 1
    assert REGEX_TIMER in context.beat("a", 1).timers
