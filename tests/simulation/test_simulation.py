"""Twenty-four seeds of each protocol. Many more: ``make simulate SEEDS=0:10000``."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.simulation.invariants import ACKNOWLEDGED_SURVIVES, ONE_OWNER, SESSIONS_END, Invariants
from tests.simulation.run import how_to_run_again, run_seed
from tests.simulation.scenario import Scenario
from tests.simulation.world import Violation

from ottla.coordinator import messages as m
from ottla.coordinator import records as r
from ottla.driver import Driver

CHUNK = 12


@pytest.mark.parametrize("first", range(0, 2 * CHUNK, CHUNK))
@pytest.mark.parametrize("protocols", ["classic", "mixed", "consumer"])
def test_every_invariant_holds_whatever_happens(protocols: str, first: int) -> None:
    failures = [
        f"seed {seed}: {problem}\nagain: {how_to_run_again(seed, protocols)}"
        for seed, problem, _ in (run_seed(seed, protocols) for seed in range(first, first + CHUNK))
        if problem is not None
    ]
    assert not failures, "\n\n".join(failures)


def test_a_seed_always_tells_the_same_story() -> None:
    stories = []
    for _ in range(2):
        scenario = Scenario(7)
        scenario.run()
        stories.append((scenario.world.log, list(scenario.world.trace)))
    assert stories[0] == stories[1]


def _told(invariants: Invariants, member_id: str) -> Any:
    """A member of generation 1 that owns partition 0 and does not know it yet."""
    invariants._note_given(m.JoinResponse(member_id=member_id, generation_id=1))
    return SimpleNamespace(group_id="group", member_id=member_id, generation=1, owned={0}, identity=member_id)


def test_two_owners_are_found_unless_the_group_began_anew_between_them() -> None:
    """Found by seeds 42042 and 43434: a response may arrive long after the group has ended."""
    invariants = Invariants(SimpleNamespace(observers=[], on_decided=[], on_acknowledged=[], on_start=[]))  # type: ignore[arg-type]
    early, late = _told(invariants, "a"), _told(invariants, "b")
    invariants._note_ends([r.CoordinatorRecord(r.GroupMetadataKey("group"), None)])
    invariants.member_owns(_told(invariants, "c"))
    invariants.member_owns(late)
    with pytest.raises(Violation, match="partition 0 of group in generation 1: b and a"):
        invariants.member_owns(early)
    with pytest.raises(Violation, match="partition 0 of group in generation 1: c and d"):
        invariants.member_owns(_told(invariants, "d"))


@pytest.mark.parametrize(("seed", "invariant"), [(222, ACKNOWLEDGED_SURVIVES), (137, ONE_OWNER)])
def test_a_response_before_its_records_are_committed_is_found(
    seed: int, invariant: str, answer_too_early: Callable[[], None]
) -> None:
    assert run_seed(seed)[1] is None
    answer_too_early()
    assert str(run_seed(seed)[1]).startswith(invariant)


def test_a_timer_that_fires_after_later_work_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_seed(629)[1] is None
    monkeypatch.setattr(Driver, "time", lambda driver: driver._clock.now())
    assert str(run_seed(629)[1]).startswith(SESSIONS_END)
