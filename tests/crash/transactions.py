"""Exactly once with our own clients, while broker and clients are killed with SIGKILL. Many rounds.

    python -m tests.crash.transactions --rounds 25 --seed 1

Copiers, each a process with its own transactional id, are members of one group and share the input partitions; the
others take over from a dead one. They copy each record to the output, with offsets and records in one transaction, and
abort some of them. A round adds inputs, lets them work for a moment, and kills the broker, a copier, or both; or it
starts a second copier with the same id next to the first. At the end everything is drained, and the output must have
every input exactly once, in the order of its input partition.

It differs from exactly_once.py in the clients and in the group: there each copier has its own partition.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from ottla import Admin, Consumer, KafkaError, NewTopic, OttlaError, Producer, TopicPartition
from ottla.clients.producer import transaction_requests

from .broker_process import ROOT, BrokerProcess

INPUT, OUTPUT, GROUP = "numbers", "copies", "copiers"
PARTITIONS = 4
COPIERS = 2
A_ROUND = 120
GIVE_UP_SECONDS = 120.0
WORK_SECONDS = 8.0
BROKER = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


# ── a copier ──────────────────────────────────────────────────────────────────────────────────────────────────────


def copy(servers: str, name: str, seed: int, version: int) -> None:
    """Copy until killed, fenced, or without a response from the broker for too long."""
    if version == 1:
        transaction_requests._version = lambda connection: 1
    chance = random.Random(seed)
    producer = Producer(bootstrap_servers=servers, transactional_id=name, transaction_timeout_ms=10_000, linger_ms=0)
    producer.init_transactions()
    consumer = Consumer(
        bootstrap_servers=servers, group_id=GROUP, enable_auto_commit=False, auto_offset_reset="earliest",
        isolation_level="read_committed", session_timeout_ms=1_000, heartbeat_interval_ms=200,
        max_poll_records=chance.randint(1, 12), fetch_max_wait_ms=50,
    )  # fmt: skip
    consumer.subscribe([INPUT])
    while True:
        records = consumer.poll(0.5)
        if not records:
            continue
        try:
            with producer.transaction():
                for record in records:
                    producer.send(OUTPUT, record.value, partition=record.partition)
                after = {TopicPartition(each.topic, each.partition): each.offset + 1 for each in records}
                producer.send_offsets_to_transaction(after, consumer.group_metadata())
                if chance.random() < 0.2:
                    raise Changed
        except Changed:
            read_again(consumer)
        except KafkaError as error:
            print(f"{type(error).__name__} ({error.remedy}): {error}", flush=True)
            if error.remedy in ("stop", "retry"):
                raise
            read_again(consumer)


class Changed(Exception):
    """The copier aborts on purpose."""


def read_again(consumer: Consumer) -> None:
    for key, found in consumer.committed(consumer.assignment()).items():
        if found is None:
            consumer.seek_to_beginning(key)
        else:
            consumer.seek(key, found.offset)


# ── the run ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Copying:
    """The copiers, what they have to copy, and what they have copied."""

    def __init__(self, directory: Path, servers: str, chance: random.Random, version: int = 2) -> None:
        self.servers = servers
        self.version = version
        self.chance = chance
        self.directory = directory
        self.copiers: list[list[subprocess.Popen[bytes]]] = [[] for _ in range(COPIERS)]
        self.written = [0] * PARTITIONS

    def create_topics(self) -> None:
        with Admin(bootstrap_servers=self.servers) as admin:
            for topic in (INPUT, OUTPUT):
                admin.create_topics(NewTopic(topic, num_partitions=PARTITIONS))

    def let_them_work(self) -> None:
        """Wait until something is copied, which after a death takes a session timeout, plus a random time."""
        before = self.copied()
        deadline = time.monotonic() + WORK_SECONDS
        while time.monotonic() < deadline and self.copied() == before:
            time.sleep(0.05)
        time.sleep(self.chance.uniform(0, 0.3))

    def write(self, count: int) -> None:
        with Producer(bootstrap_servers=self.servers) as producer:
            futures = []
            for partition in range(PARTITIONS):
                for _ in range(count // PARTITIONS):
                    value = b"%d-%d" % (partition, self.written[partition])
                    futures.append(producer.send(INPUT, value, partition=partition))
                    self.written[partition] += 1
            for future in futures:
                future.result(60)

    def look_after(self) -> None:
        """Replace a copier that has ended because it was fenced or gave up."""
        for index in range(COPIERS):
            self.copiers[index] = [each for each in self.copiers[index] if each.poll() is None]
            if not self.copiers[index]:
                self.start(index)

    def start(self, index: int) -> None:
        command = [sys.executable, "-m", "tests.crash.transactions", "--copier", f"copier-{index}"]
        command += ["--protocol", str(self.version), "--bootstrap", self.servers, "--seed"]
        command += [str(self.chance.randrange(10**6))]
        with (self.directory / f"copier-{index}.log").open("ab") as log:
            self.copiers[index].append(subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log))

    def kill(self, index: int) -> None:
        for process in self.copiers[index]:
            process.kill()
            process.wait()

    def drain(self) -> None:
        """Wait until everything is copied."""
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while self.copied() < sum(self.written) and time.monotonic() < deadline:
            self.look_after()
            time.sleep(0.3)

    def copied(self) -> int:
        return sum(map(len, self.seen().values()))

    def seen(self) -> dict[int, list[bytes]]:
        """Return the output as a read_committed consumer sees it, by partition."""
        keys = [TopicPartition(OUTPUT, number) for number in range(PARTITIONS)]
        found: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
        with Consumer(
            bootstrap_servers=self.servers, isolation_level="read_committed", auto_offset_reset="earliest",
        ) as consumer:  # fmt: skip
            consumer.assign(keys)
            ends = consumer.end_offsets(keys)
            deadline = time.monotonic() + 30
            while any(consumer.position(key) < ends[key] for key in keys) and time.monotonic() < deadline:
                for record in consumer.poll(0.2):
                    found[record.partition].append(record.value or b"")
        return found

    def problems(self) -> list[str]:
        found: list[str] = []
        for partition, values in self.seen().items():
            counts = Counter(values)
            wanted = [b"%d-%d" % (partition, number) for number in range(self.written[partition])]
            found += [f"missing: {value!r}" for value in wanted if not counts[value]][:10]
            found += [f"{number} times: {value!r}" for value, number in counts.items() if number > 1][:10]
            if not found and values != wanted:
                found.append(f"partition {partition} is not in the order of its inputs")
        return found

    def tell(self) -> None:
        """Describe the state."""
        for index in range(COPIERS):
            print((self.directory / f"copier-{index}.log").read_text("utf-8", "replace")[-3000:])

    def close(self) -> None:
        for index in range(COPIERS):
            self.kill(index)


class Run:
    """The broker, the copiers and the rounds."""

    def __init__(self, directory: Path, seed: int, version: int) -> None:
        self.chance = random.Random(seed)
        self.broker = BrokerProcess(directory / "data", directory / "broker.log", BROKER)
        self.copying = Copying(directory, self.broker.bootstrap_servers, self.chance, version)
        self.deaths = Counter[str]()

    def go(self, rounds: int) -> None:
        self.broker.start()
        self.copying.servers = self.broker.bootstrap_servers  # The first start chooses the port.
        self.copying.create_topics()
        for number in range(rounds):
            self._round(number)
        self.copying.drain()

    def _round(self, number: int) -> None:
        copying = self.copying
        copying.write(A_ROUND)
        copying.look_after()
        copying.let_them_work()
        victims = self.chance.choice(["broker", "copier", "both", "double"])
        self.deaths[victims] += 1
        if victims in ("copier", "both"):
            copying.kill(self.chance.randrange(COPIERS))
        if victims == "double":
            copying.start(self.chance.randrange(COPIERS))
        if victims in ("broker", "both"):
            self.broker.kill()
            self.broker.start()
        print(f"round {number + 1}: {victims}, {sum(copying.written)} inputs, {copying.copied()} copies", flush=True)

    def problems(self) -> list[str]:
        return self.copying.problems()

    def tell(self) -> None:
        """Describe the state."""
        self.copying.tell()
        print(self.broker.last_words(30), flush=True)

    def close(self) -> None:
        self.copying.close()
        self.broker.close()


def main() -> int:
    parser = argparse.ArgumentParser(description="Exactly once with our own clients, under SIGKILL.")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--protocol", type=int, choices=(1, 2), default=2, help="version of the transaction protocol")
    parser.add_argument("--copier", help=argparse.SUPPRESS)
    parser.add_argument("--bootstrap", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.copier is not None:
        try:
            copy(args.bootstrap, args.copier, args.seed, args.protocol)
        except OttlaError as error:
            print(f"ended: {type(error).__name__}: {error}", flush=True)
        return 1
    with tempfile.TemporaryDirectory() as directory:
        run = Run(Path(directory), args.seed, args.protocol)
        try:
            run.go(args.rounds)
            problems = run.problems()
            if problems:
                run.tell()
        finally:
            run.close()
    deaths = ", ".join(f"{number} x {what}" for what, number in sorted(run.deaths.items()))
    print(f"{args.rounds} rounds ({deaths}), {sum(run.copying.written)} inputs, broker lives {run.broker.lives}")
    for problem in problems:
        print(problem)
    print("every input is there exactly once" if not problems else "NOT exactly once")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
