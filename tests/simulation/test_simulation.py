"""A few hundred seeds. Many more: ``make simulate SEEDS=0:10000``."""

from __future__ import annotations

import pytest
from tests.simulation.run import how_to_run_again, run_seed
from tests.simulation.scenario import Scenario

CHUNK = 25


@pytest.mark.parametrize("first", range(0, 75, CHUNK))
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
