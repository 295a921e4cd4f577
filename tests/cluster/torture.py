"""Random faults of a cluster under load. Many rounds; after each batch of them the checker judges everything.

    python -m tests.cluster.torture --rounds 50 --seed 1

A round chooses a fault and a broker with a certain role. Producers of four libraries, transactions, committed offsets
and consumers work all the time, and copiers copy exactly once. After a fault, all of them must get on. The seed decides
everything but the timing.

`--network namespaces` runs each broker in a network namespace and cuts its link (needs root).
`--broken NAME` runs brokers that break a promise, to see that the checker finds it; see broken.py.
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.crash.transactions import Copying

from .broken import BREAKS, BrokenCluster
from .clusters import NamespaceCluster, PlainCluster
from .faults import FAULTS, OFTEN, ROLES, Faults
from .trial import BROKER, Trial

BATCH = 10


class Torture:
    """A cluster, batches of rounds on it, and what went wrong."""

    def __init__(self, cluster: PlainCluster, seed: int, directory: Path, only: Sequence[str] = ()) -> None:
        self.cluster = cluster
        self.seed = seed
        self.chance = random.Random(seed)
        self.faults = Faults(cluster, self.chance)
        self.only = only
        self.counts = Counter[str]()
        self.records = self.checked = self.transactions = self.commits = 0
        self.longest = 0.0
        self.problems: list[str] = []
        self._copying = Copying(directory, cluster.bootstrap_servers, self.chance)

    def run(self, rounds: int) -> None:
        """Run the rounds in batches, until the first batch with problems."""
        self._copying.create_topics()
        try:
            done = 0
            while done < rounds and not self.problems:
                count = min(BATCH, rounds - done)
                self._batch(done, count)
                done += count
        finally:
            self._copying.close()

    def _batch(self, done: int, count: int) -> None:
        trial = Trial(self.cluster, str(done), self.seed + done)
        self.faults.topic = trial.plain
        trial.start()
        try:
            trial.await_progress()
            for number in range(done + 1, done + count + 1):
                self._round(number, trial)
            self._copying.drain()
            self.problems += trial.finish() + self._copying.problems()
        finally:
            trial.halt()
        self.records += len(trial.history.acked)
        self.transactions += len(trial.history.transactions)
        self.commits += sum(map(len, trial.history.commits.values()))
        self.checked += trial.checked
        _say(
            f"  {len(trial.history.acked)} records acknowledged, {trial.checked} checked: {len(self.problems)} problems"
        )

    def _round(self, number: int, trial: Trial) -> None:
        names = self.only or (OFTEN if self.chance.random() < 0.5 else tuple(FAULTS))
        name, role = self.chance.choice(names), self.chance.choice(ROLES)
        self._copying.write(40)
        self._copying.look_after()
        trial.await_progress()
        victim = self.faults.victim(role)
        self.counts[name] += 1
        _say(f"round {number}: {name}, {role} {victim.id}", end="")
        started = time.monotonic()
        FAULTS[name](self.faults, victim)
        took = time.monotonic() - started
        recovery = trial.await_progress()
        self.longest = max(self.longest, recovery)
        if self.chance.random() < 0.5:
            self.cluster.wait_until_replicated(timeout=60)
        _say(f": {took:.1f} s, progress after {recovery:.1f} s, {trial.progress}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Random faults of a cluster under load.")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--network", choices=("proxy", "namespaces"), default="proxy")
    parser.add_argument("--broken", choices=BREAKS)
    parser.add_argument("--fault", choices=FAULTS, action="append", default=[], help="only these faults")
    parser.add_argument("--keep", type=Path, help="keep the files in this directory if there are problems")
    args = parser.parse_args()
    # Clients warn of every broker that is down.
    logging.getLogger("ottla").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="ottla-torture-") as directory:
        root = Path(directory)
        started = time.monotonic()
        with _cluster(args, root / "cluster") as cluster:
            torture = Torture(cluster, args.seed, root, args.fault)
            try:
                torture.run(args.rounds)
            except BaseException:
                torture.problems.append(traceback.format_exc())
            if torture.problems and args.keep is not None:
                shutil.copytree(root, args.keep, dirs_exist_ok=True)
    return _report(torture, args, time.monotonic() - started)


def _cluster(args: argparse.Namespace, directory: Path) -> PlainCluster:
    if args.broken is not None:
        return BrokenCluster(args.broken, data_dir=directory, config=BROKER)
    kind = NamespaceCluster if args.network == "namespaces" else PlainCluster
    return kind(data_dir=directory, config=BROKER)


def _report(torture: Torture, args: argparse.Namespace, seconds: float) -> int:
    counts = ", ".join(f"{number} x {name}" for name, number in sorted(torture.counts.items()))
    _say(f"seed {args.seed}: {sum(torture.counts.values())} rounds in {seconds:.0f} s ({counts})")
    _say(
        f"{torture.records} records and {torture.commits} offsets acknowledged, {torture.transactions} transactions, "
        f"{torture.checked} records checked, longest pause after a fault {torture.longest:.1f} s"
    )
    for problem in torture.problems:
        _say(problem)
    _say("nothing acknowledged is lost" if not torture.problems else f"{len(torture.problems)} PROBLEMS")
    return 1 if torture.problems else 0


def _say(text: str, end: str = "\n") -> None:
    print(text, end=end, flush=True)


if __name__ == "__main__":
    sys.exit(main())
