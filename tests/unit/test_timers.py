"""Keyed timers: replaced, cancelled, and given back in order."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.timers import TimerQueue


def test_a_timer_of_the_same_key_is_replaced() -> None:
    timers = TimerQueue()
    timers.set("a", 10)
    timers.set("a", 30)
    assert list(timers.due(now=20)) == []
    assert list(timers.due(now=30)) == ["a"]
    assert len(timers) == 0


def test_a_timer_can_be_set_earlier_and_cancelled() -> None:
    timers = TimerQueue()
    timers.set("a", 30)
    timers.set("a", 10)
    timers.set("b", 20)
    timers.cancel("b")
    timers.cancel("never set")
    assert timers.next_deadline() == 10
    assert list(timers.due(now=100)) == ["a"]
    assert timers.next_deadline() is None


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 50) | st.none())), st.integers(0, 60))
def test_timers_are_due_as_a_dict_of_deadlines_says(steps: list[tuple[int, int | None]], now: int) -> None:
    timers, model = TimerQueue(), {}
    for key, at in steps:
        if at is None:
            timers.cancel(key)
            model.pop(key, None)
        else:
            timers.set(key, at)
            model[key] = at
    due = [key for key, at in model.items() if at <= now]
    fired = list(timers.due(now=now))
    assert sorted(fired) == sorted(due)
    assert [model[key] for key in fired] == sorted(model[key] for key in due)
    assert timers.next_deadline() == min((at for key, at in model.items() if key not in due), default=None)


def test_a_timer_that_is_set_meanwhile_waits_for_the_next_call() -> None:
    timers, fired = TimerQueue(), []
    timers.set("a", 5)
    timers.set("b", 6)
    for key in timers.due(now=10):
        fired.append(key)
        timers.set("a", 10)
    assert (fired, timers.next_deadline()) == (["a", "b"], 10)
    assert list(timers.due(now=10)) == ["a"]
