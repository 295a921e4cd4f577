"""Run simulations of replication.

Many seeds: ``python -m tests.simulation.replication.run --seeds 0:10000``. One in detail: ``--seed 17``; add
``--minimise`` to leave out the faults that do not matter, and ``--keep 3,5`` to run with these faults only.
``--kind coordinators`` runs group and transaction coordinators on top. ``--plant all`` looks for planted bugs.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
from collections import Counter
from collections.abc import Collection, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import NamedTuple

from tests.simulation.replication.planted import BUGS, OF_COORDINATORS, plant
from tests.simulation.replication.scenario import COORDINATORS, KINDS, RECORDS, Scenario
from tests.simulation.run import seed_range


class Result(NamedTuple):
    """What became of a seed."""

    seed: int
    problem: str | None
    steps: int
    is_excused: bool
    """More brokers stopped uncleanly than promised, so from then on committed records could be lost."""


def run_seed(seed: int, *, kind: str = RECORDS, keep: Collection[int] | None = None) -> Result:
    """Run one seed."""
    scenario = Scenario(seed, kind=kind, keep=keep)
    problem = None
    try:
        scenario.run()
    except Exception as error:
        problem = str(error) if isinstance(error, AssertionError) and str(error) else traceback.format_exc()
    invariants = scenario.cluster.invariants
    return Result(seed, problem, scenario.cluster.steps, invariants.is_lossy and not scenario.options.unclean)


def minimised(seed: int, *, kind: str = RECORDS) -> list[int]:
    """Return the numbers of the faults without which a failing seed would not fail in the same way."""
    invariant = _invariant(run_seed(seed, kind=kind).problem)
    keep = [fault.number for fault in Scenario(seed, kind=kind).faults]
    size = max(1, len(keep) // 2)
    while keep:
        parts = [keep[first : first + size] for first in range(0, len(keep), size)]
        for part in parts:
            fewer = [number for number in keep if number not in part]
            if _invariant(run_seed(seed, kind=kind, keep=fewer).problem) == invariant:
                keep = fewer
                break
        else:
            if size == 1:
                break
            size //= 2
    return keep


def _invariant(problem: str | None) -> str | None:
    return None if problem is None else problem.strip().splitlines()[-1].partition(":")[0]


def show_seed(seed: int, *, kind: str, keep: Collection[int] | None) -> int:
    """Run one seed and print what happened."""
    scenario = Scenario(seed, kind=kind, keep=keep)
    code = 0
    try:
        scenario.run()
    except Exception:
        code = 1
        failure = traceback.format_exc()
    for at, text in scenario.cluster.trace:
        print(f"{at / 1000:9.3f}  {text}")
    print(failure if code else f"seed {seed}: every invariant held in {scenario.cluster.steps} steps")
    return code


def how_to_run_again(seed: int, *, kind: str) -> str:
    chosen = "" if kind == RECORDS else f" --kind {kind}"
    return f"python -m tests.simulation.replication.run --seed {seed}{chosen}"


def first_finder(bug: str, seeds: Iterable[int]) -> tuple[int, str] | None:
    """Return the first seed that finds a planted bug, with the problem."""
    kind = COORDINATORS if bug in OF_COORDINATORS else RECORDS
    with plant(bug):
        for seed in seeds:
            if (problem := run_seed(seed, kind=kind).problem) is not None:
                return seed, problem
    return None


def find_planted(bugs: Collection[str], seeds: range) -> int:
    """Look for planted bugs, and print the first seed that finds each."""
    missed = 0
    for bug in bugs:
        found = first_finder(bug, seeds)
        missed += found is None
        print(
            f"{bug}: " + ("not found" if found is None else f"seed {found[0]}: {found[1].strip().splitlines()[-1]}"),
            flush=True,
        )
    return 1 if missed else 0


def run_seeds(seeds: range, jobs: int, *, kind: str) -> int:
    """Run many seeds and print the failed ones, with how to run them again."""
    started, steps, excused, failures = time.monotonic(), 0, 0, Counter[str | None]()
    with ProcessPoolExecutor(jobs) as pool:
        run = partial(run_seed, kind=kind)
        results = map(run, seeds) if jobs == 1 else pool.map(run, seeds, chunksize=20)
        for seed, problem, taken, is_excused in results:
            steps += taken
            excused += is_excused
            if problem is not None:
                failures[_invariant(problem)] += 1
                print(f"\nseed {seed}: {problem}\n  again: {how_to_run_again(seed, kind=kind)}", flush=True)
    took = time.monotonic() - started
    print(
        f"{len(seeds)} seeds ({excused} with more unclean stops than promised), {steps} steps in {took:.0f} s: "
        f"{sum(failures.values())} failed {dict(failures) or ''}"
    )
    return 1 if failures else 0


def _numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",") if each]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.replication.run", description=__doc__)
    parser.add_argument("--seeds", type=seed_range, default=range(1_000), help="a range, such as 0:10000")
    parser.add_argument("--seed", type=int, help="one seed, with all its events")
    parser.add_argument("--keep", type=_numbers, help="with --seed: the numbers of the faults that happen")
    parser.add_argument("--minimise", action="store_true", help="with --seed: leave out faults that do not matter")
    parser.add_argument("--kind", choices=KINDS, default=RECORDS, help="the kind of scenario (records)")
    parser.add_argument("--plant", choices=[*BUGS, "all"], help="look for the first seed that finds a planted bug")
    parser.add_argument("--jobs", type=int, default=1, help="processes to use (1)")
    arguments = parser.parse_args()
    logging.disable()  # The driver logs every failed append.
    if arguments.plant is not None and arguments.seed is None:
        return find_planted(list(BUGS) if arguments.plant == "all" else [arguments.plant], arguments.seeds)
    if arguments.seed is None:
        return run_seeds(arguments.seeds, arguments.jobs, kind=arguments.kind)
    with plant(arguments.plant):
        keep = minimised(arguments.seed, kind=arguments.kind) if arguments.minimise else arguments.keep
        code = show_seed(arguments.seed, kind=arguments.kind, keep=keep)
    if arguments.minimise:
        print(f"the faults that matter: --keep {','.join(map(str, keep))}")
    return code


if __name__ == "__main__":
    sys.exit(main())
