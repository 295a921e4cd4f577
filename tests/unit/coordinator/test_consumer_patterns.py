"""When the regular expressions of a consumer group are resolved, and to which topics."""

from __future__ import annotations

from typing import Any

import pytest

from ottla import errors
from ottla.coordinator import history
from ottla.coordinator import records as r
from ottla.coordinator.consumer.logged import LoggedGroup
from ottla.coordinator.consumer.member import Change, Member
from ottla.coordinator.consumer.patterns import MIN_REFRESH_INTERVAL, REGEX, Patterns, RegexChange
from ottla.coordinator.consumer.records import RecordWriter
from ottla.coordinator.effects import Effects

TIMER = (REGEX, "g")
REFRESH = 600_000
LATER = MIN_REFRESH_INTERVAL + 1


class Group:
    """The parts of a group that patterns need."""

    def __init__(self, **regexes: str) -> None:
        self.logged = LoggedGroup("g")
        self.patterns = Patterns(self.logged, RecordWriter("g"), REFRESH)
        for member_id, regex in regexes.items():
            fx = Effects(now=0)
            RecordWriter("g").member(Member(member_id, subscribed_topic_regex=regex), fx)
            self.replay(fx)

    def replay(self, fx: Effects) -> None:
        for record in fx.records:
            self.logged.replay(*record)

    def heartbeat(self, member_id: str, regex: str, *, now: int) -> tuple[RegexChange, Effects]:
        before = self.logged.members.get(member_id) or Member(member_id)
        change = Change(before, before._replace(subscribed_topic_regex=regex))
        fx = Effects(now=now)
        kind = self.patterns.changed_by(change, fx)
        self.patterns.refresh_after(change, kind, fx)
        return kind, fx

    def resolve(self, *topics: str, now: int) -> tuple[set[str], bool]:
        fx = Effects(now=now)
        resolved = self.patterns.resolve(topics, fx)
        self.replay(fx)
        return resolved


def written(fx: Effects) -> dict[str, Any]:
    return {
        record.key.regular_expression: record.value
        for record in fx.records
        if isinstance(record.key, r.ConsumerGroupRegularExpressionKey)
    }


def test_a_new_expression_is_resolved_at_once() -> None:
    kind, fx = Group().heartbeat("a", "o.*", now=50_000)
    assert kind is RegexChange.UNRESOLVED
    assert (fx.timers, fx.records) == ({TIMER: 50_000}, [])


def test_an_invalid_expression_is_rejected_and_nothing_is_asked_for() -> None:
    group = Group()
    with pytest.raises(errors.InvalidRegularExpression, match=r"`\(` is not a valid regular expression: missing \)"):
        group.heartbeat("a", "(", now=0)
    assert group.heartbeat("a", "o.*", now=0)[1].timers == {TIMER: 0}


def test_an_expression_that_another_member_has_is_resolved_already() -> None:
    group = Group(a="o.*")
    group.resolve("orders", now=50_000)
    kind, fx = group.heartbeat("b", "o.*", now=50_001)
    assert (kind, fx.timers) == (RegexChange.RESOLVED, {})


def test_the_last_member_takes_its_expression_with_it() -> None:
    group = Group(a="o.*", b="o.*", c="u.*")
    group.resolve("orders", now=50_000)
    assert written(group.heartbeat("a", "", now=50_001)[1]) == {}
    assert group.heartbeat("c", "", now=50_001)[0] is RegexChange.RESOLVED
    assert written(group.heartbeat("c", "", now=50_001)[1]) == {"u.*": None}
    fx = Effects(now=0)
    group.patterns.drop_unused(["o.*", "u.*", ""], fx)
    assert written(fx) == {"u.*": None}


def test_expressions_are_resolved_at_most_every_ten_seconds() -> None:
    group = Group(a="o.*")
    assert group.heartbeat("a", "o.*", now=50_000)[1].timers == {TIMER: 50_000}
    assert group.heartbeat("a", "o.*", now=50_001)[1].timers == {}
    assert group.heartbeat("a", "o.*", now=50_000 + LATER)[1].timers == {TIMER: 50_000 + LATER}
    group.resolve("orders", now=50_000 + LATER)
    group.patterns.topics_created(now=60_002)
    assert group.heartbeat("a", "o.*", now=60_003)[1].timers == {}
    assert group.heartbeat("a", "o.*", now=60_001 + LATER)[1].timers == {TIMER: 60_001 + LATER}


def test_a_lost_timer_does_not_count() -> None:
    group = Group(a="o.*")
    group.heartbeat("a", "o.*", now=50_000)
    group.patterns.append_failed()
    assert group.heartbeat("a", "o.*", now=50_001)[1].timers == {TIMER: 50_001}


def test_expressions_are_resolved_again_from_time_to_time() -> None:
    group = Group(a="o.*")
    group.resolve("orders", now=50_000)
    assert group.heartbeat("a", "o.*", now=50_000 + REFRESH)[1].timers == {}
    assert group.heartbeat("a", "o.*", now=50_001 + REFRESH)[1].timers == {TIMER: 50_001 + REFRESH}


def test_a_resolution_says_what_the_group_subscribes_to_and_whether_that_is_new() -> None:
    group = Group(a="o.*", b="u.*")
    assert group.resolve("users", "orders", "offers", now=50_000) == ({"offers", "orders", "users"}, True)
    assert group.logged.subscriptions.resolved["o.*"].topics == ("offers", "orders")
    assert group.resolve("users", "orders", "offers", now=50_001) == ({"offers", "orders", "users"}, False)
    assert group.resolve("users", "orders", now=50_002) == ({"orders", "users"}, True)


def test_an_expression_that_this_broker_rejects_keeps_its_topics() -> None:
    group = Group(a="(?=x)")
    fx = Effects(now=0)
    RecordWriter("g").regex("(?=x)", r.ConsumerGroupRegularExpressionValue(("x",), 0, 0), fx)
    group.replay(fx)
    assert group.resolve("x", "y", now=50_000) == ({"x"}, False)


def test_the_member_that_asked_is_named_until_the_log_has_the_resolution() -> None:
    group = Group(a="o.*")
    group.heartbeat("b", "u.*", now=0)
    assert group.patterns.asked_by == (history.MEMBER_JOINED, Member("b").who)
    group.patterns.resolve(["users"], Effects(now=0))
    assert group.patterns.asked_by == (history.MEMBER_JOINED, Member("b").who)
    group.patterns.resolved()
    assert group.patterns.asked_by == (history.TOPIC_METADATA_CHANGED, None)
    group.heartbeat("a", "u.*", now=0)
    assert group.patterns.asked_by == (history.SUBSCRIPTION_CHANGED, Member("a").who)
