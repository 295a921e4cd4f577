from __future__ import annotations

from ottla.coordinator.classic.waiting import Waiting
from ottla.coordinator.effects import Effects
from ottla.machine import Parked


def test_a_parked_request_is_answered_once() -> None:
    waiting, fx = Waiting(), Effects(now=0)
    assert waiting.park("a", Parked(0)) == Parked(0)
    waiting.park("b", Parked(1))
    assert (list(waiting), len(waiting), "a" in waiting) == (["a", "b"], 2, True)
    assert waiting.answer("a", "hello", fx)
    assert not waiting.answer("a", "again", fx)
    assert not waiting.answer("c", "nobody", fx)
    assert fx.answers == {0: "hello"}
    assert (list(waiting), "a" in waiting) == (["b"], False)
