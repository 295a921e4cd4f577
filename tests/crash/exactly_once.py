"""Consume, transform and produce exactly once, while broker and clients are killed with SIGKILL. Many rounds.

    python -m tests.crash.exactly_once --rounds 25 --seed 1

Two copiers, each a process with its own transactional id and input partition, read numbers, write them to the output
topic and commit their offsets in the same transaction. They abort some transactions. A round adds inputs, lets them
work for a moment and kills the broker, a copier, or both. Sometimes a second copier with the same id is started next to
the first, which must do no harm. At the end everything is drained, and the output must have every input exactly once.

`--library` chooses the clients. To add one, write a function like `copy_confluent` and add it to `LIBRARIES`.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from .broker_process import ROOT, BrokerProcess

INPUT, OUTPUT = "numbers", "copies"
COPIERS = 2
A_ROUND = 60
GIVE_UP_SECONDS = 120.0
PATIENCE = 8.0
BROKER = {"log.flush.offset.checkpoint.interval.ms": "300", "transaction.state.log.num.partitions": "3",
          "offsets.topic.num.partitions": "3", "log.initial.task.delay.ms": "100",
          "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}  # fmt: skip


class Watchdog(threading.Thread):
    """Ends the process if a call into the library does not return.

    librdkafka's send_offsets_to_transaction may wait forever, with any timeout, when the coordinator of the group is
    gone (its issues 5456 and 5511). A copier that is ended like this counts as killed.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.alive_at = time.monotonic()

    def run(self) -> None:
        while time.monotonic() - self.alive_at < PATIENCE:
            time.sleep(0.2)
        print("ends: a call did not return", flush=True)
        os._exit(3)


# ── a copier ──────────────────────────────────────────────────────────────────────────────────────────────────────


def copy_confluent(bootstrap_servers: str, number: int, seed: int) -> None:
    """Copy until killed. After an abortable error it aborts the transaction; any other error ends the process."""
    chance = random.Random(seed)
    shared = {"bootstrap.servers": bootstrap_servers, "log_level": 0}
    producer = Producer({**shared, "transactional.id": f"copier-{number}", "transaction.timeout.ms": 10_000})
    producer.init_transactions(PATIENCE)
    consumer = Consumer(
        {**shared, "group.id": f"copiers-{number}", "enable.auto.commit": False, "isolation.level": "read_committed"}
    )
    place = TopicPartition(INPUT, number)
    _seek_confluent(consumer, place)
    watchdog = Watchdog()
    watchdog.start()
    while True:
        watchdog.alive_at = time.monotonic()
        messages = [each for each in consumer.consume(chance.randint(1, 8), 0.2) if not each.error()]
        if not messages:
            continue
        producer.begin_transaction()
        try:
            for message in messages:
                producer.produce(OUTPUT, message.value(), partition=chance.randrange(2))
            after = [TopicPartition(INPUT, number, (messages[-1].offset() or 0) + 1)]
            producer.send_offsets_to_transaction(after, consumer.consumer_group_metadata(), PATIENCE)
            if chance.random() < 0.8:
                producer.commit_transaction(PATIENCE)
                continue
            producer.abort_transaction(PATIENCE)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(PATIENCE)
        _seek_confluent(consumer, place)


def _seek_confluent(consumer: Consumer, place: TopicPartition) -> None:
    (found,) = consumer.committed([place], PATIENCE)
    start = found.offset if found.offset >= 0 else OFFSET_BEGINNING
    consumer.assign([TopicPartition(place.topic, place.partition, start)])


LIBRARIES: dict[str, Callable[[str, int, int], None]] = {"confluent": copy_confluent}


# ── the run ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Run:
    """The broker, the copiers and the expected results."""

    def __init__(self, directory: Path, seed: int, library: str) -> None:
        self.chance = random.Random(seed)
        self.directory = directory
        self.library = library
        self.broker = BrokerProcess(directory / "data", directory / "broker.log", BROKER)
        self.copiers: list[list[subprocess.Popen[bytes]]] = [[] for _ in range(COPIERS)]
        self.written = [0] * COPIERS
        self.deaths = Counter[str]()

    def go(self, rounds: int) -> None:
        self.broker.start()
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers})
        for made in admin.create_topics([NewTopic(INPUT, COPIERS), NewTopic(OUTPUT, 2)]).values():
            made.result(30)
        for number in range(rounds):
            self._round(number)
        self._drain()

    def _round(self, number: int) -> None:
        self._write(A_ROUND)
        for index in range(COPIERS):
            self._look_after(index)
        time.sleep(self.chance.uniform(0.1, 1.2))
        victims = self.chance.choice(["broker", "copier", "both", "double"])
        self.deaths[victims] += 1
        if victims in ("copier", "both"):
            self._kill_copiers(self.chance.randrange(COPIERS))
        if victims == "double":
            self._start_copier(self.chance.randrange(COPIERS))
        if victims in ("broker", "both"):
            self.broker.kill()
            self.broker.start()
        print(f"round {number + 1}: {victims}, {sum(self.written)} inputs, {len(self.seen())} copies", flush=True)

    def _write(self, count: int) -> None:
        producer = Producer(
            {"bootstrap.servers": self.broker.bootstrap_servers, "enable.idempotence": True, "log_level": 0}
        )
        for index in range(COPIERS):
            for _ in range(count):
                producer.produce(INPUT, b"%d-%d" % (index, self.written[index]), partition=index)
                self.written[index] += 1
        assert producer.flush(60) == 0

    def _look_after(self, index: int) -> None:
        """Replace a copier that has ended because it was fenced or gave up."""
        self.copiers[index] = [each for each in self.copiers[index] if each.poll() is None]
        if not self.copiers[index]:
            self._start_copier(index)

    def _start_copier(self, index: int) -> None:
        command = [sys.executable, "-m", "tests.crash.exactly_once", "--copier", str(index), "--library", self.library]
        command += ["--bootstrap", self.broker.bootstrap_servers, "--seed", str(self.chance.randrange(10**6))]
        with (self.directory / f"copier-{index}.log").open("ab") as log:
            self.copiers[index].append(subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log))

    def _kill_copiers(self, index: int) -> None:
        for process in self.copiers[index]:
            process.kill()
            process.wait()

    def _drain(self) -> None:
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while len(self.seen()) < sum(self.written) and time.monotonic() < deadline:
            for index in range(COPIERS):
                self._look_after(index)
            time.sleep(0.3)
        if len(self.seen()) < sum(self.written):
            self._tell()
        for index in range(COPIERS):
            self._kill_copiers(index)

    def _tell(self) -> None:
        """Describe the state when there is no progress."""
        names = [f"copier-{index}" for index in range(COPIERS)]
        for command in (["list"], ["describe", *names], ["find-hanging", "--max-transaction-timeout", "0"]):
            arguments = ["transactions", command[0], "-b", self.broker.bootstrap_servers, *command[1:]]
            subprocess.run([sys.executable, "-m", "ottla", *arguments], cwd=ROOT, check=False)
        for name in names:
            print((self.directory / f"{name}.log").read_text("utf-8", "replace")[-2000:])
        print(self.broker.last_words(30), flush=True)

    def seen(self) -> list[bytes]:
        """Return the output as a read_committed consumer sees it."""
        consumer = Consumer(
            {"bootstrap.servers": self.broker.bootstrap_servers, "group.id": "check", "enable.partition.eof": True,
             "isolation.level": "read_committed", "enable.auto.commit": False, "log_level": 0}
        )  # fmt: skip
        consumer.assign([TopicPartition(OUTPUT, index, OFFSET_BEGINNING) for index in range(2)])
        found: list[bytes] = []
        ends = 0
        deadline = time.monotonic() + 30
        while ends < 2 and time.monotonic() < deadline:
            for message in consumer.consume(1000, 0.3):
                if message.error():
                    ends += 1
                else:
                    found.append(message.value() or b"")
        consumer.close()
        return found

    def problems(self) -> list[str]:
        counts = Counter(self.seen())
        wanted = [b"%d-%d" % (index, value) for index in range(COPIERS) for value in range(self.written[index])]
        missing = [value for value in wanted if not counts[value]]
        twice = [value for value, number in counts.items() if number > 1]
        return [*(f"missing: {value!r}" for value in missing[:10]), *(f"twice: {value!r}" for value in twice[:10])]

    def close(self) -> None:
        for index in range(COPIERS):
            self._kill_copiers(index)
        self.broker.close()


def main() -> int:
    parser = argparse.ArgumentParser(description="Exactly once, under SIGKILL.")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--library", choices=LIBRARIES, default="confluent")
    parser.add_argument("--copier", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--bootstrap", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.copier is not None:
        try:
            LIBRARIES[args.library](args.bootstrap, args.copier, args.seed)
        except Exception as error:
            # librdkafka may wait forever for the end of a producer with an open transaction.
            print(f"ends: {error}", flush=True)
            os._exit(1)
    with tempfile.TemporaryDirectory() as directory:
        run = Run(Path(directory), args.seed, args.library)
        try:
            run.go(args.rounds)
            problems = run.problems()
        finally:
            run.close()
    deaths = ", ".join(f"{number} x {what}" for what, number in sorted(run.deaths.items()))
    print(f"{args.rounds} rounds ({deaths}), {sum(run.written)} inputs, broker lives {run.broker.lives}")
    for problem in problems:
        print(problem)
    print("every input is there exactly once" if not problems else "NOT exactly once")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
