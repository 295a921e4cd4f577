"""Run simulations: ``python -m tests.simulation.run --seeds 0:10000``, or one in detail: ``--seed 17``."""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.simulation.scenario import CLASSIC, CONSUMER, MIXED, Scenario

PROTOCOLS = {"any": None, "classic": CLASSIC, "mixed": MIXED, "consumer": CONSUMER}


def run_seed(seed: int, protocols: str = "any") -> tuple[int, str | None, int]:
    """Run one seed; return it, the violation if any, and the number of coordinator steps."""
    scenario = Scenario(seed, PROTOCOLS[protocols])
    try:
        scenario.run()
    except Exception as error:
        problem = str(error) if isinstance(error, AssertionError) and str(error) else traceback.format_exc()
        return seed, problem, scenario.world.steps
    return seed, None, scenario.world.steps


def show_seed(seed: int, protocols: str) -> int:
    """Run one seed and print its last events."""
    scenario = Scenario(seed, PROTOCOLS[protocols])
    try:
        scenario.run()
    except Exception:
        print("\n".join(scenario.world.trace))
        traceback.print_exc()
        return 1
    print("\n".join(scenario.world.trace))
    print(f"seed {seed}: every invariant held in {scenario.world.steps} steps")
    return 0


def how_to_run_again(seed: int, protocols: str) -> str:
    chosen = "" if protocols == "any" else f" --protocols {protocols}"
    return f"python -m tests.simulation.run --seed {seed}{chosen}"


def run_seeds(seeds: range, jobs: int, protocols: str) -> int:
    """Run many seeds and print the failed ones, with how to run them again."""
    started, steps, failures = time.monotonic(), 0, Counter[str]()
    with ProcessPoolExecutor(jobs) as pool:
        run = partial(run_seed, protocols=protocols)
        results = map(run, seeds) if jobs == 1 else pool.map(run, seeds, chunksize=20)
        for done, (seed, problem, taken) in enumerate(results, 1):
            steps += taken
            if problem is not None:
                failures[problem.strip().splitlines()[-1].partition(":")[0]] += 1
                print(f"\nseed {seed}: {problem}\n  again: {how_to_run_again(seed, protocols)}", flush=True)
            if sys.stderr.isatty():
                print(f"\r{done}/{len(seeds)} seeds, {sum(failures.values())} failed", end="", file=sys.stderr)
    took = time.monotonic() - started
    print(f"{len(seeds)} seeds, {steps} steps in {took:.0f} s: {sum(failures.values())} failed {dict(failures) or ''}")
    return 1 if failures else 0


def seed_range(text: str) -> range:
    first, _, last = text.partition(":")
    try:
        return range(int(first), int(last)) if last else range(int(first))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a range such as 0:1000") from None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.run", description=__doc__)
    parser.add_argument("--seeds", type=seed_range, default=range(1_000), help="a range, such as 0:10000")
    parser.add_argument("--seed", type=int, help="one seed, with all its events")
    parser.add_argument("--jobs", type=int, default=1, help="processes to use (1)")
    parser.add_argument("--protocols", choices=PROTOCOLS, default="any", help="the protocols of the members (any)")
    arguments = parser.parse_args()
    logging.disable()  # The driver logs every failed append.
    if arguments.seed is not None:
        return show_seed(arguments.seed, arguments.protocols)
    return run_seeds(arguments.seeds, arguments.jobs, arguments.protocols)


if __name__ == "__main__":
    sys.exit(main())
