"""A few seeds. Many more: ``make simulate-replication SEEDS=0:10000``."""

from __future__ import annotations

from itertools import chain

import pytest
from tests.simulation.replication.planted import BUGS, plant
from tests.simulation.replication.run import first_finder, how_to_run_again, minimised, run_seed
from tests.simulation.replication.scenario import KINDS, Scenario

#: The first seed that finds each planted bug, from ``--plant all``.
FINDERS = {
    "answer_before_high_watermark": 0,
    "count_committed_isr_only": 1,
    "forget_leavers_at_once": 2,
    "use_answer_before_image": 280,
    "commit_below_min_isr": 1,
    "join_at_high_watermark": 129,
    "join_behind": 0,
    "count_followers_of_earlier_epochs": 10,
    "accept_fetches_of_earlier_lives": 90,
    "ignore_divergence": 2,
    "read_uncommitted": 0,
    "truncate_to_high_watermark": 1,
    "truncate_once": 24,
    "raise_high_watermark_before_truncating": 366,
    "join_without_epoch_check": 648,
    "join_of_fenced_broker": 56,
    "accept_stale_alter_partition": 92,
    "elect_anybody": 0,
    "unclean_restart_keeps_elr": 0,
    "eligible_beside_full_isr": 1,
    "keep_elr_with_lower_minimum": 7,
    "deposed_controller_writes": 0,
    "replay_before_writing": 0,
    "lead_before_registered": 0,
    "take_a_lost_machine_for_a_killed_process": 1,
    "keep_clean_shutdown_file": 0,
    "answer_before_records_are_replicated": 0,
    "complete_before_markers_are_replicated": 23,
}
CHUNK = 12


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", range(0, 2 * CHUNK, CHUNK))
def test_every_invariant_of_replication_holds_whatever_happens(first: int, kind: str) -> None:
    failures = [
        f"seed {result.seed}: {result.problem}\nagain: {how_to_run_again(result.seed, kind=kind)}"
        for result in (run_seed(seed, kind=kind) for seed in range(first, first + CHUNK))
        if result.problem is not None
    ]
    assert not failures, "\n\n".join(failures)


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_always_tells_the_same_story(kind: str) -> None:
    stories = []
    for _ in range(2):
        scenario = Scenario(7, kind=kind)
        scenario.run()
        stories.append((scenario.cluster.zookeeper.log, scenario.cluster.invariants.committed, scenario.cluster.trace))
    assert stories[0] == stories[1]


def test_every_planted_bug_has_a_seed() -> None:
    assert set(FINDERS) == set(BUGS)


@pytest.mark.parametrize(("bug", "seed"), FINDERS.items(), ids=list(FINDERS))
def test_a_planted_bug_is_found(bug: str, seed: int) -> None:
    """If a change of the machines has moved the finding seed, the others are tried too. That takes longer."""
    found = first_finder(bug, chain([seed], range(1000)))
    assert found is not None
    assert "Traceback" not in found[1]


def test_a_failing_seed_is_minimised() -> None:
    with plant("elect_anybody"):
        problem = run_seed(FINDERS["elect_anybody"]).problem
        faults = minimised(FINDERS["elect_anybody"])
        again = run_seed(FINDERS["elect_anybody"], keep=faults).problem
    assert problem is not None
    assert again is not None
    assert again.partition(":")[0] == problem.partition(":")[0]
    assert len(faults) < len(Scenario(FINDERS["elect_anybody"]).faults)
