"""Kafka Streams with exactly_once_v2: two instances count words while they and the broker are killed."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from pathlib import Path

from benchmarks.peer import Peer
from tests.ecosystem.jvm import Failed, Program, running, until
from tests.ecosystem.topics import committed, create

import ottla

WORDS = 3000
STEP = WORDS // 6


def run(broker: Peer, directory: Path) -> str:
    """Count words under kills; return a line about the result."""
    words = [f"word-{random.Random(number).randrange(40)}" for number in range(WORDS)]
    address = broker.bootstrap_servers
    create(address, ottla.NewTopic("words", 3), ottla.NewTopic("counts", 3))
    first, second = (
        Program(directory, f"streams-{n}", "Counts", [address, str(directory / f"state-{n}")]) for n in (1, 2)
    )
    with running(first, second):
        first.says("state RUNNING")
        _send(address, words[:STEP])
        _wait(address, words[: STEP // 2])
        first.kill()
        _send(address, words[STEP : 2 * STEP])
        first.start()
        _wait(address, words[: 2 * STEP])
        _send(address, words[2 * STEP : 3 * STEP])
        broker.kill()
        broker.start()
        _send(address, words[3 * STEP : 4 * STEP])
        second.kill()
        broker.kill()
        broker.start()
        second.start()
        _send(address, words[4 * STEP :])
        _wait(address, words)
        second.stop()
        first.stop()
    found, expected = _counts(address), Counter(words)
    for word, count in expected.items():
        if found[word] != list(range(1, count + 1)):
            raise Failed(f"{word} came {count} times, and the counts are {found[word]}")
    return f"{WORDS:,} words, each counted once; 2 kills of instances, 2 of the broker"


def _send(address: str, words: list[str]) -> None:
    with ottla.Producer(bootstrap_servers=address) as producer:
        for word in words:
            producer.send("words", word.encode())


def _wait(address: str, words: list[str]) -> None:
    until(
        lambda: sum(map(len, _counts(address).values())) >= len(words), f"{len(words)} words have not been counted yet"
    )


def _counts(address: str) -> dict[str, list[int]]:
    """The committed counts of each word, in order."""
    found: dict[str, list[int]] = defaultdict(list)
    for record in committed(address, "counts"):
        found[(record.key or b"").decode()].append(int(record.value or b""))
    return found
