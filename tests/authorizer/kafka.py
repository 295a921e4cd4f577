"""Compare the authorizer with Apache Kafka's StandardAuthorizer: ``python -m tests.authorizer.kafka --cases 100000``.

Needs Java 17 or newer and Maven, which downloads Kafka's jars once. Hosts are single IPv4 addresses here: Kafka knows
no networks.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.apache_kafka import class_path, find_java
from tests.authorizer.cases import Question, World, ask, some_questions, world

PROGRAM = Path(__file__).parent / "Authorize.java"
QUESTIONS = 100


def lines(here: World, questions: list[Question]) -> Iterator[str]:
    yield "\t".join(("world", str(here.default).lower(), ";".join(here.super_users)))
    for rule in here.rules:
        yield "\t".join(("rule", *rule))
    for each in questions:
        yield "\t".join(("ask", each.principal, each.host, each.operation, each.resource_type, each.name))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    args = parser.parse_args()
    asked: list[tuple[int, Question, str]] = []
    written: list[str] = []
    for seed in range(args.seed, args.seed + -(-args.cases // QUESTIONS)):
        questions = some_questions(seed, QUESTIONS, kafka=True)
        here = world(seed, questions, kafka=True)
        written += lines(here, questions)
        for each in questions:
            answers = (ask(here.authorizer, each), ask(here.authorizer, each, any_name=True))
            asked.append((seed, each, "".join(str(int(answer.allowed)) for answer in answers)))
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
        file.write("\n".join(written))
        file.flush()
        command = [find_java(), "-cp", class_path(), str(PROGRAM), file.name]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode:
        print(found.stderr, file=sys.stderr)
        return 1
    answers = found.stdout.split()
    wrong = [(*case, theirs) for case, theirs in zip(asked, answers, strict=True) if case[2] != theirs]
    for seed, question, ours, theirs in wrong[:10]:
        print(f"seed {seed}: {question}: ours {ours}, Kafka's {theirs} (by name, on any)")
    allowed = sum(answer[0] == "1" for answer in answers)
    print(f"{len(asked):,} cases, {allowed:,} of them allowed: {len(wrong):,} differ from Kafka's StandardAuthorizer")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
