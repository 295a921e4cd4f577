"""Compare this checkout with another one, for a change that must not cost speed.

    git worktree add ../before v0.1 && make -C ../before setup
    python -m benchmarks.trees ../before [--rounds 5] [--only broker]

The brokers of both take turns under the load of `benchmarks.broker` and `benchmarks.groups`; then the clients of both
take turns on one broker. A round has a ratio of its own, new / old, because the machine changes from round to round.
A row is WORSE if the median of the ratios is more than 3 % worse, and no more than one round is better.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks import consumer, groups_commits, groups_wire, producer, throughput
from benchmarks.comparison import say
from benchmarks.groups import CONFIG, in_turn
from benchmarks.memory import fill_page_cache
from benchmarks.ottla_broker import OttlaBroker
from benchmarks.peer import Peer
from benchmarks.report import Measure, Report

OLD, NEW = "old", "new"
TOLERATED = 0.03
#: Units in which more is better; in others, such as seconds, less is.
RATES = ("records/s", "commits/s")
HERE = Path(__file__).resolve().parent.parent
COMMIT_SECONDS = 3.0
PRODUCERS = ("ottla", "ottla-aio")
CONSUMERS = ("ottla poll()", "ottla iteration", "ottla asyncio iteration")


class Tree:
    """A checkout with its own environment."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.directory = directory.resolve()
        self.python = self.directory / ".venv" / "bin" / "python"
        if not self.python.exists():
            raise SystemExit(f"{self.python} does not exist: run  make -C {directory} setup")

    def run(self, module: str, *arguments: str) -> list[float]:
        """Run a module of its benchmarks, and return the numbers of the last line."""
        done = subprocess.run(
            [self.python, "-m", module, *arguments],
            cwd=self.directory,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        if done.returncode:
            raise SystemExit(f"{module} of {self.directory} failed:\n{done.stderr[-2000:]}")
        return [float(number) for number in done.stdout.strip().splitlines()[-1].split()]


class TreeBroker(OttlaBroker):
    """The broker of a checkout."""

    def __init__(self, tree: Tree, config: dict[str, int] | None = None) -> None:
        super().__init__(config)
        self.name = tree.name
        self._python = tree.python

    def command(self) -> list[str]:
        return [str(self._python), *super().command()[1:]]


def brokers(trees: Sequence[Tree], report: Report, rounds: int) -> None:
    with TreeBroker(trees[0]) as old, TreeBroker(trees[1]) as new:
        peers: list[Peer] = [old, new]
        throughput.warm_up(peers, quick=True)
        for number in range(rounds):
            say(f"throughput, round {number + 1} of {rounds}")
            for case in throughput.cases(quick=True, full=False):
                throughput.measure(in_turn(peers, number), report, case, number)


def groups(trees: Sequence[Tree], report: Report, rounds: int) -> None:
    async def run(peers: list[Peer]) -> None:
        for peer in peers:
            await groups_wire.wait_for_coordinators(peer)
            await groups_commits.prepare(peer)
        for number in range(rounds):
            say(f"commits, round {number + 1} of {rounds}")
            for case in groups_commits.CASES:
                for peer in in_turn(peers, number):
                    await groups_commits.measure(peer, report, case, COMMIT_SECONDS)

    with TreeBroker(trees[0], CONFIG) as old, TreeBroker(trees[1], CONFIG) as new:
        groups_wire.run(run([old, new]))


def producers(trees: Sequence[Tree], report: Report, rounds: int) -> None:
    cases = [(size, codec) for codec in ("none", "lz4") for size in (100, 1024)]
    with OttlaBroker() as broker:
        for number in range(rounds):
            say(f"producers, round {number + 1} of {rounds}")
            for client in PRODUCERS:
                for size, codec in cases:
                    for tree in in_turn(list(trees), number):
                        topic = f"{client}-{size}-{codec}-{number}-{tree.name}"
                        producer.create_topic(broker.bootstrap_servers, topic, 4)
                        job = {
                            "client": client,
                            "bootstrap": broker.bootstrap_servers,
                            "topic": topic,
                            "size": size,
                            "records": 600_000 if size == 100 else 200_000,
                            "compression": codec,
                            "batch_size": 16_384,
                            "linger_ms": 5,
                        }
                        fill_page_cache()
                        (rate,) = tree.run("benchmarks.producer", "--job", json.dumps(job))
                        name = f"{client}, {size} B, {codec}"
                        report.measure("Producer", name, "records/s").add(tree.name, rate)


def consumers(trees: Sequence[Tree], report: Report, rounds: int) -> None:
    with OttlaBroker() as broker:
        for size, records in consumer.SIZES.items():
            topic = f"consumers-{size}"
            consumer.fill(broker.bootstrap_servers, topic, size, records)
            job = {"servers": broker.bootstrap_servers, "topic": topic, "records": records, "size": size, "ottla": {}}
            for number in range(rounds):
                say(f"consumers, {size} B, round {number + 1} of {rounds}")
                for client in CONSUMERS:
                    for tree in in_turn(list(trees), number):
                        fill_page_cache()
                        rate, cpu = tree.run("benchmarks.consumer", "--client", client, "--job", json.dumps(job))
                        report.measure("Consumer", f"{client}, {size} B", "records/s").add(tree.name, rate)
                        report.measure("Consumer, CPU", f"{client}, {size} B", "s/million").add(tree.name, cpu)


PARTS = {"broker": brokers, "groups": groups, "producer": producers, "consumer": consumers}


def ratios(measure: Measure) -> list[float]:
    """Return new / old of each round."""
    return [new / old for old, new in zip(measure.values[OLD], measure.values[NEW], strict=True) if old]


def is_worse(found: Sequence[float], *, more_is_better: bool) -> bool:
    """
    >>> is_worse([0.95, 0.96, 0.95, 0.94, 1.1], more_is_better=True), is_worse([1.0, 0.96, 1.02], more_is_better=True)
    (True, False)
    """
    losses = [1 - one if more_is_better else one - 1 for one in found]
    return statistics.median(losses) > TOLERATED and sum(loss > 0 for loss in losses) >= len(losses) - 1


def show(report: Report) -> int:
    """Print the table, and return how many rows are worse."""
    worse, shown = 0, [one for one in report.measures if one.unit != "MB/s" and not one.void and ratios(one)]
    print(f"\n{'':44}{'old':>13}{'new':>13}  {'':10} new / old, median and range")
    for measure in shown:
        found = ratios(measure)
        is_bad = is_worse(found, more_is_better=measure.unit in RATES)
        worse += is_bad
        medians = "".join(f"{measure.of(name):13,.2f}" for name in (OLD, NEW))
        spread = f"{statistics.median(found):.3f}  {min(found):.2f} to {max(found):.2f}"
        name = f"{measure.section}: {measure.name.strip()}"
        print(f"{name:44.44}{medians}  {measure.unit:10} {spread}{'  WORSE' if is_bad else ''}")
    if report.other_cores:
        print(f"\nOther processes used {statistics.median(report.other_cores):.1f} cores.")
    return worse


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="a checkout of the old version, after `make setup` there")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", action="append", choices=PARTS, help="only this part (may be repeated)")
    options = parser.parse_args()
    trees = Tree(OLD, options.other), Tree(NEW, HERE)
    report = Report({})
    for name in options.only or PARTS:
        PARTS[name](trees, report, options.rounds)
    worse = show(report)
    print(f"{worse} rows are worse by more than {TOLERATED:.0%}, beyond the noise.")
    return 1 if worse else 0


if __name__ == "__main__":
    raise SystemExit(main())
