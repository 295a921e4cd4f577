"""Transactions under churn. For more seeds: ``python -m tests.simulation.transactions --seeds 0:10000``."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.simulation.transactions import Broker, Scenario, run_seed

from ottla.transactions.messages import FIRST_VERSION, SECOND_VERSION

CHUNK = 12


@pytest.mark.parametrize("first", range(0, 2 * CHUNK, CHUNK))
@pytest.mark.parametrize("version", [FIRST_VERSION, SECOND_VERSION])
def test_every_invariant_of_transactions_holds_whatever_happens(version: int, first: int) -> None:
    problems = {seed: run_seed(seed, version)[0] for seed in range(first, first + CHUNK)}
    assert {seed: problem for seed, problem in problems.items() if problem is not None} == {}


def test_the_first_version_breaks_when_requests_and_markers_come_late() -> None:
    """The second version passes with the same messages. This also shows that the invariants find violations."""
    found = {str(run_seed(seed, FIRST_VERSION, late=True)[0]).split(":")[0] for seed in range(12)}
    assert found & {"all or nothing", "exactly once"}


def test_a_seed_always_tells_the_same_story() -> None:
    stories = []
    for _ in range(2):
        scenario = Scenario(7, SECOND_VERSION)
        scenario.run()
        stories.append((scenario.world.broker.records, scenario.world.trace))
    assert stories[0] == stories[1]


@pytest.mark.parametrize(
    ("version", "seed", "invariant"),
    [
        (SECOND_VERSION, 0, "fenced"),
        (SECOND_VERSION, 31, "acknowledged"),
        (SECOND_VERSION, 3, "nothing hangs"),
        (FIRST_VERSION, 31, "acknowledged"),
    ],
)
def test_a_response_before_its_records_are_committed_is_found(
    version: int, seed: int, invariant: str, answer_too_early: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most seeds find it at the first write. Without that check the others find it in the end."""
    assert run_seed(seed, version)[0] is None
    answer_too_early()
    if invariant != "fenced":
        monkeypatch.setattr(Broker, "_check_write", lambda *args: None)
    assert str(run_seed(seed, version)[0]).startswith(invariant)
