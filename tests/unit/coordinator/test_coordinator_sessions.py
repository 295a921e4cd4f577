"""Sessions of members, for both kinds of groups."""

from __future__ import annotations

import pytest

from ottla.coordinator.effects import Effects
from ottla.coordinator.sessions import Sessions

A, B = ("heartbeat", "billing", "a"), ("heartbeat", "billing", "b")


@pytest.fixture
def sessions() -> Sessions:
    """A session of a that started at 0 and lasts for 10 seconds."""
    sessions = Sessions("heartbeat", "billing")
    sessions.touch("a", 10_000, Effects(now=0))
    return sessions


def test_the_first_touch_sets_the_timer_and_later_ones_only_move_the_deadline(sessions: Sessions) -> None:
    fx = Effects(now=4_000)
    sessions.touch("b", 10_000, fx)
    sessions.touch("a", 10_000, fx)
    assert fx.timers == {B: 14_000}
    assert sessions.by_member["a"].deadline == 14_000


def test_a_timer_that_fires_too_early_is_set_again(sessions: Sessions) -> None:
    sessions.touch("a", 10_000, Effects(now=4_000))
    fx = Effects(now=10_000)
    assert not sessions.is_over("a", fx)
    assert fx.timers == {A: 14_000}


def test_a_session_is_over_at_its_deadline_and_can_start_again(sessions: Sessions) -> None:
    fx = Effects(now=10_000)
    assert sessions.is_over("a", fx)
    assert fx.timers == {}
    sessions.touch("a", 10_000, fx)
    assert fx.timers == {A: 20_000}


def test_a_shorter_session_sets_the_timer_earlier(sessions: Sessions) -> None:
    fx = Effects(now=1_000)
    sessions.touch("a", 2_000, fx)
    assert fx.timers == {A: 3_000}


def test_a_forgotten_session_has_no_timer(sessions: Sessions) -> None:
    fx = Effects(now=1_000)
    sessions.forget("a", fx)
    assert fx.timers == {A: None}
    assert sessions.is_over("a", fx)


def test_only_the_sessions_of_some_members_are_retained(sessions: Sessions) -> None:
    sessions.touch("b", 10_000, Effects(now=0))
    sessions.retain({"b", "c"})
    assert sessions.by_member.keys() == {"b"}


def test_timers_can_be_cancelled_and_set_again(sessions: Sessions) -> None:
    sessions.touch("a", 10_000, Effects(now=4_000))
    fx = Effects(now=5_000)
    sessions.cancel_timers(fx)
    assert fx.timers == {A: None}
    sessions.set_timers(fx)
    assert fx.timers == {A: 14_000}
