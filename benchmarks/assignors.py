"""Compare the sticky assignors with Kafka's: `python -m benchmarks.assignors`.

ottla's assignor and the one of Kafka's Java client get the same groups, one after the other, each in its own process.
Each case has four rounds: the first assignment, the same group again, a group after a member left, and a group after
a member joined. Times are the best of several repeats and include parsing the members' user data. The first repeats
warm up the JVM. The output also shows the balance and the number of moved partitions.

Groups: "equal" has equal subscriptions. In "one differs" one member has only one topic. In "halves" each member has
every other topic, and all have the first.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.apache_kafka import class_path, find_java
from benchmarks.peer import Unavailable
from ottla.assignors import BY_NAME, Assignment, Partitions, Subscription
from ottla.assignors.sticky import encode_user_data

PROGRAM = Path(__file__).parent / "java" / "Assignors.java"
HEAP = "-Xmx6G"


@dataclass(frozen=True)
class Case:
    assignor: str
    kind: str
    topics: int
    partitions: int
    members: int

    def __str__(self) -> str:
        every = self.topics * self.partitions
        return f"{self.assignor}, {self.kind}: {every:,} partitions of {self.topics:,} topics, {self.members:,} members"


KINDS = ("equal", "one differs", "halves")
ASSIGNORS = ("sticky", "cooperative-sticky")


def cases(options: argparse.Namespace) -> Iterator[Case]:
    for assignor in options.assignor or ASSIGNORS:
        for kind in options.kind or KINDS:
            yield Case(assignor, kind, options.topics, options.partitions, options.members)


def subscriptions(case: Case, count: int, had: Mapping[str, Partitions]) -> dict[str, Subscription]:
    names = [f"topic-{number:05}" for number in range(case.topics)]
    wanted = {
        "equal": [names],
        "one differs": [names[:1], names],
        "halves": [names[0::2], names[:1] + names[1::2]],
    }[case.kind]
    told = {}
    for number in range(count):
        topics = wanted[number % 2] if case.kind == "halves" else wanted[min(number, len(wanted) - 1)]
        name = f"member-{number:05}"
        owned = had.get(name, {})
        if case.assignor == "sticky":
            told[name] = Subscription(topics, encode_user_data(owned, 1) if owned else None)
        else:
            told[name] = Subscription(topics, None, owned, 1)
    return told


def measure(case: Case, repeats: int) -> Iterator[dict[str, Any]]:
    first = yield from measure_round("first", case, case.members, {}, repeats)
    for name, more in (("again", 0), ("one leaves", -1), ("one joins", 1)):
        yield from measure_round(name, case, case.members + more, first, repeats)


def measure_round(
    name: str, case: Case, count: int, had: Mapping[str, Partitions], repeats: int
) -> Iterator[dict[str, Any]]:
    per_topic = {f"topic-{number:05}": case.partitions for number in range(case.topics)}
    best = float("inf")
    result: Mapping[str, Assignment] = {}
    for _ in range(repeats):
        told = subscriptions(case, count, had)
        began = time.perf_counter()
        result = BY_NAME[case.assignor]().assign(per_topic, told)
        best = min(best, time.perf_counter() - began)
    given = {member: each.partitions for member, each in result.items()}
    sizes = [sum(map(len, partitions.values())) for partitions in given.values()]
    moves = sum(
        len(set(numbers) - set(given[member].get(topic, ())))
        for member, partitions in had.items()
        if member in given
        for topic, numbers in partitions.items()
    )
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    yield {"round": name, "seconds": best, "least": min(sizes), "most": max(sizes), "moves": moves, "megabytes": memory}
    return given


def ours(case: Case, repeats: int, timeout: float) -> list[dict[str, Any]]:
    """Run a case in its own process, so that its memory does not affect the next case."""
    rounds: list[dict[str, Any]] = []
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.Process(target=_run_ours, args=(case, repeats, sender))
    process.start()
    sender.close()
    end = time.monotonic() + timeout
    try:
        while receiver.poll(max(end - time.monotonic(), 0)):
            rounds.append(receiver.recv())
    except EOFError:
        pass
    process.terminate()
    process.join()
    return rounds


def _run_ours(case: Case, repeats: int, sender: Any) -> None:
    for each in measure(case, repeats):
        sender.send(each)


def kafka(case: Case, repeats: int, timeout: float) -> list[dict[str, Any]]:
    numbers = map(str, (case.topics, case.partitions, case.members, repeats))
    command = [find_java(), HEAP, "-cp", class_path(), str(PROGRAM), case.assignor, case.kind, *numbers]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False).stdout
    except subprocess.TimeoutExpired as late:
        said = (late.stdout or b"").decode()
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


def show(case: Case, mine: list[dict[str, Any]], theirs: list[dict[str, Any]], timeout: float) -> None:
    print(f"\n{case}")
    print(f"  {'round':<11} {'ottla':>9} {'Kafka':>9} {'ratio':>6}   sizes, moves (ottla | Kafka)")
    for at, name in enumerate(("first", "again", "one leaves", "one joins")):
        one = mine[at] if at < len(mine) else None
        other = theirs[at] if at < len(theirs) else None
        seconds = [f"{each['seconds']:8.2f}s" if each else f"> {timeout:5.0f}s" for each in (one, other)]
        ratio = f"{one['seconds'] / other['seconds']:6.2f}" if one and other else "     -"
        results = [f"{each['least']} to {each['most']}, {each['moves']}" if each else "-" for each in (one, other)]
        print(f"  {name:<11} {seconds[0]} {seconds[1]} {ratio}   {' | '.join(results)}")
    if mine:
        print(f"  ottla's process had at most {mine[-1]['megabytes']:,} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the sticky assignors with Kafka's.")
    parser.add_argument("--assignor", action="append", choices=ASSIGNORS)
    parser.add_argument("--kind", action="append", choices=KINDS)
    parser.add_argument("--topics", type=int, default=500)
    parser.add_argument("--partitions", type=int, default=2000, help="partitions of each topic")
    parser.add_argument("--members", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=300, help="seconds for each side of each case")
    parser.add_argument("--alone", action="store_true", help="measure only ottla")
    options = parser.parse_args()
    for case in cases(options):
        mine = ours(case, options.repeats, options.timeout)
        theirs: list[dict[str, Any]] = []
        if not options.alone:
            try:
                theirs = kafka(case, options.repeats, options.timeout)
            except Unavailable as problem:
                print(problem)
                options.alone = True
        show(case, mine, theirs, options.timeout)


if __name__ == "__main__":
    main()
