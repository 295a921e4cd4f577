"""Events: told once, seldom again while it lasts, once when it is over; occurrences together after a quiet time."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ottla.monitoring.alarms import BEGAN, HAPPENED, LASTS, OVER, Alarms, Subject

BILLING = Subject("lag", "billing")
HOUR = 3_600_000


def test_a_condition_is_told_when_it_begins_each_hour_and_when_it_is_over() -> None:
    alarms = Alarms()
    statuses = [
        (now, event.status)
        for now in range(0, 3 * HOUR, 15_000)
        for event in alarms.condition(BILLING, now < 2.5 * HOUR, {}, now=now)
    ]
    assert statuses == [(0, BEGAN), (HOUR, LASTS), (2 * HOUR, LASTS), (9_000_000, OVER)]


def test_a_subject_that_is_gone_is_over() -> None:
    alarms = Alarms()
    alarms.condition(BILLING, True, {}, now=0)
    (event,) = alarms.forget("lag", {"other"}, now=5)
    assert (event.subject, event.status) == (BILLING, OVER)
    assert alarms.forget("lag", set(), now=6) == []


def test_occurrences_are_told_at_once_and_then_together() -> None:
    alarms = Alarms()
    assert [one.count for one in alarms.occurred(BILLING, {"n": 1}, now=0)] == [1]
    for n in range(2, 100):
        assert alarms.occurred(BILLING, {"n": n}, now=n * 100) == []
    assert alarms.due(now=59_999) == []
    (event,) = alarms.due(now=60_000)
    assert (event.status, event.count, event.details) == (HAPPENED, 98, {"n": 99})
    assert alarms.due(now=120_000) == []
    assert [one.count for one in alarms.occurred(BILLING, {}, now=120_001)] == [1]


@given(st.lists(st.integers(0, 50_000), max_size=200))
def test_every_occurrence_is_counted_in_exactly_one_event_and_there_is_at_most_one_in_a_minute(gaps: list[int]) -> None:
    alarms, now, events = Alarms(), 0, []
    for gap in gaps:
        now += gap
        events += alarms.due(now=now)
        events += alarms.occurred(BILLING, {}, now=now)
    events += alarms.due(now=now + 60_000)
    assert sum(event.count for event in events) == len(gaps)
    assert all(later.at - earlier.at >= 60_000 for earlier, later in pairwise(events))
    assert len({event.id for event in events}) == len(events)
