"""Kill the broker under load, start it again, and check everything that it acknowledged. Many rounds.

    python -m tests.crash.torture --rounds 25 --seed 1

The broker dies in turn: by a kill from outside at a random moment, at the n-th change of a file, during the recovery
from its last death, while a topic is created or altered, during compaction. Sometimes it is stopped cleanly instead; it
must leave its marker and start without recovery. The seed decides everything but the timing.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.wire import Wire

from ottla.protocol.apis import ApiKey
from ottla.types import TopicPartition

from .broker_process import BrokerProcess
from .churn import Churn
from .doomed import CALLS, MOMENTS
from .ledger import Ledger
from .loads import AioKafkaLoad, ConfluentLoad, KafkaPythonLoad, Load, PlainConfluentLoad, Watcher
from .verification import (
    check_acknowledged,
    check_compacted,
    check_dense,
    check_order,
    check_prefix,
    check_sequence_numbers,
    read_partition,
)

SMALL_SEGMENTS = {"internal.segment.bytes": "20000", "index.interval.bytes": "500"}
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "plain": (2, {}),
    "rolling": (2, SMALL_SEGMENTS),
    "flushed": (1, {"flush.messages": "1", "internal.segment.bytes": "100000"}),
    "zipped": (1, {"compression.type": "zstd", "segment.index.bytes": "96", "index.interval.bytes": "0"}),
    "compacted": (1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", **SMALL_SEGMENTS}),
}
COMPACTED = "compacted"
BROKER = {
    "auto.create.topics.enable": "false",
    "log.cleaner.backoff.ms": "100",
    "log.initial.task.delay.ms": "100",
    "log.flush.offset.checkpoint.interval.ms": "300",
    "log.segment.delete.delay.ms": "500",
}
LONGEST_LIFE = 1.5
LOADS: dict[str, type[Load]] = {
    "rdkafka-a": ConfluentLoad,
    "rdkafka-b": ConfluentLoad,
    "rdkafka-plain": PlainConfluentLoad,
    "kafka-python": KafkaPythonLoad,
    "aiokafka": AioKafkaLoad,
}
MODES = ("load", "doomed", "compaction", "topics", "recovery", "doomed", "doomed recovery", "clean")


@dataclass
class Summary:
    """The results of a run."""

    deaths: dict[str, int] = field(default_factory=dict)
    acknowledged: int = 0
    verified: int = 0
    topic_operations: int = 0
    recovery_seconds: float = 0.0


class Torture:
    """The broker, the loads on it, and the rounds."""

    def __init__(self, directory: Path, seed: int, say: Callable[[str], None] = print) -> None:
        self.broker = BrokerProcess(directory / "data", directory / "broker.log", BROKER)
        self.ledger = Ledger()
        self.summary = Summary()
        self._seed = seed
        self._rng = random.Random(seed)
        self._say = say
        self._partitions = [TopicPartition(name, i) for name, (count, _) in TOPICS.items() for i in range(count)]
        self._served: dict[TopicPartition, list[tuple[int, int]]] = {}
        self._leader_epoch = 0
        self._loads: list[Load] = []
        self._churn: Churn
        self._watcher: Watcher

    def run(self, rounds: int) -> Summary:
        """Run the rounds and the end: everything that was sent must have arrived."""
        try:
            self._begin()
            for number in range(rounds):
                self._round(f"{number + 1:3}/{rounds}", MODES[number % len(MODES)])
            self._end()
        finally:
            self._halt()
            self.broker.close()
        return self.summary

    def _halt(self) -> None:
        for load in self._loads:
            load.halt.set()

    def _begin(self) -> None:
        self.broker.start()
        with Wire(self.broker.port) as wire:
            for name, (partitions, configs) in TOPICS.items():
                _create_topic(wire, name, partitions, configs)
        self._churn = Churn(self.broker.port, self.ledger, self._seed)
        watched = [where for where in self._partitions if where.topic != COMPACTED]
        self._watcher = Watcher(self.broker.bootstrap_servers, watched, self.ledger)
        for name, kind in LOADS.items():
            load = kind(name, self.broker.bootstrap_servers, self._partitions, self.ledger, self._seed)
            self._loads.append(load)
        for thread in (*self._loads, self._churn, self._watcher):
            thread.start()
        self._let_send(True)

    def _let_send(self, may: bool) -> None:
        for load in self._loads:
            (load.may_send.set if may else load.may_send.clear)()

    # ── a round ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _round(self, title: str, mode: str) -> None:
        had = self.ledger.acknowledged
        how = _DEATHS[mode](self)
        assert not self.broker.is_alive
        began = time.monotonic()
        self.broker.start()
        self.summary.recovery_seconds += time.monotonic() - began
        self._let_send(False)
        self._verify(clean=mode == "clean")
        self._let_send(True)
        self.summary.deaths[mode] = self.summary.deaths.get(mode, 0) + 1
        self._say(
            f"round {title}  {mode:15} {how:42} back in {self.broker.start_seconds:4.2f} s, "
            f"{self.ledger.acknowledged - had:6,} records acknowledged, {self.ledger.acknowledged:8,} in all"
        )

    def _live(self) -> float:
        """Let the broker work for a while, until there is at least one acknowledgement."""
        seconds = self._rng.random() * LONGEST_LIFE
        had, begin = self.ledger.acknowledged, time.monotonic()
        while time.monotonic() - begin < seconds or self.ledger.acknowledged == had:
            assert time.monotonic() - begin < 60, f"nothing is acknowledged any more: {self.ledger.problems}"
            if self.broker.wait_dead(0.02):
                break
        return time.monotonic() - begin

    def _die_under_load(self) -> str:
        seconds = self._live()
        self.broker.kill()
        return f"killed after {seconds:.2f} s"

    def _die_at_a_call(self) -> str:
        """Start the broker with a planned death, and let it work until then."""
        self.broker.kill()
        doom = self._doom(self._rng.choice((20, 100, 600)))
        self.broker.launch(doom)
        if self.broker.wait_ready(60.0):
            self._live()
        fulfilled = self.broker.wait_dead(4.0)
        self.broker.close()
        return f"{doom[5]} {doom[1]} {doom[3]}" + ("" if fulfilled else ", which never came")

    def _doom(self, limit: int) -> list[str]:
        call = self._rng.choice(CALLS)
        moment = self._rng.choice(MOMENTS if call == "pwrite" else MOMENTS[:2])
        return ["--call", call, "--count", str(self._rng.randint(1, limit)), "--moment", moment]

    def _die_in_recovery(self) -> str:
        self._die_under_load()
        seconds = []
        for _ in range(self._rng.randint(1, 3)):
            self.broker.launch()
            seconds.append(self._rng.random() * self.broker.start_seconds * 1.2)
            self.broker.wait_ready(seconds[-1])
            self.broker.kill()
        return "killed at the start after " + ", ".join(f"{s:.2f}" for s in seconds) + " s"

    def _die_at_a_call_of_recovery(self) -> str:
        self._die_under_load()
        ends = []
        for _ in range(self._rng.randint(1, 3)):
            doom = self._doom(60)
            self.broker.launch(doom)
            self.broker.wait_ready(60.0)
            self.broker.wait_dead(0.5)
            self.broker.close()
            ends.append(f"{doom[1]} {doom[3]}")
        return "at the start, " + ", ".join(ends)

    def _die_with_topics(self) -> str:
        self._live()
        for _ in range(self._rng.randint(1, 20)):
            self._churn.in_flight.wait(5.0)
            _spin(self._rng.random() * 0.004)
        self._churn.in_flight.wait(5.0)
        _spin(self._rng.random() * 0.004)
        self.broker.kill()
        return f"killed in topic operation {self._churn.operations}"

    def _die_in_compaction(self) -> str:
        self._live()
        directory = self.broker.data_dir / f"{COMPACTED}-0"
        found = _wait_for_file(directory, (".cleaned", ".swap"), 10.0)
        _spin(self._rng.random() * 0.01)
        self.broker.kill()
        return f"killed while there was {found}"

    def _stop_cleanly(self) -> str:
        seconds = self._live()
        code = self.broker.terminate()
        assert code == 0, f"exit code {code} after SIGTERM: {self.broker.last_words()}"
        assert self.broker.has_clean_marker, "a clean stop has left no marker"
        return f"stopped after {seconds:.2f} s"

    # ── verification ──────────────────────────────────────────────────────────────────────────────────────────────

    def _verify(self, *, clean: bool) -> None:
        assert not self.ledger.problems, self.ledger.problems
        assert not self.broker.has_clean_marker, "a broker that runs has left the marker of a clean stop"
        with Wire(self.broker.port) as wire:
            self._verify_epoch(wire, clean=clean)
            for where in self._partitions:
                self._verify_partition(wire, where)
            self._churn.verify(wire)

    def _verify_epoch(self, wire: Wire, *, clean: bool) -> None:
        """Check that a kill starts a new leader epoch and a clean stop does not."""
        asked: dict[str, Any] = {"topics": [{"name": "plain"}], "allow_auto_topic_creation": False}
        epoch = wire.call(ApiKey.METADATA, 8, asked).topics[0].partitions[0].leader_epoch
        if clean:
            assert epoch == self._leader_epoch, f"leader epoch {self._leader_epoch} became {epoch} by a clean stop"
        else:
            assert epoch > self._leader_epoch, f"leader epoch {epoch} is still that from before the kill"
        self._leader_epoch = epoch

    def _verify_partition(self, wire: Wire, where: TopicPartition) -> None:
        acks = list(self.ledger.acks[where])
        log = read_partition(wire, where)
        if where.topic == COMPACTED:
            check_compacted(log, acks)
        else:
            check_dense(log)
            check_acknowledged(log, acks)
            check_order(log, {name: kind.exactly_once for name, kind in LOADS.items()})
            check_sequence_numbers(log)
            check_prefix(log, self._served.get(where, []))
            self._served[where] = log.fingerprint
        self.summary.verified += len(log.origins)

    def _end(self) -> None:
        """Let everything arrive, and compare it with what was sent and with what the consumer saw."""
        self._churn.finish()
        for load in self._loads:
            load.finish()
        self._verify(clean=True)
        for where in self._partitions:
            wanted = sum(self.ledger.sent[name, where] for name in LOADS)
            assert len(self.ledger.acks[where]) == wanted, f"{where}: {wanted} records were sent"
        self._wait_for_watcher()
        self._watcher.finish()
        assert self.broker.terminate() == 0
        assert self.broker.has_clean_marker, "a clean stop has left no marker"
        self.summary.acknowledged = self.ledger.acknowledged
        self.summary.topic_operations = self._churn.operations
        assert not self.ledger.problems, self.ledger.problems

    def _wait_for_watcher(self) -> None:
        with Wire(self.broker.port) as wire:
            for where, values in self._watcher.seen.items():
                log = read_partition(wire, where)
                deadline = time.monotonic() + 60
                while len(values) < len(log.origins):
                    assert time.monotonic() < deadline, f"the consumer of {where} is at {len(values)}: it should go on"
                    _spin(0.02)
                expected = [record.value for batch in log.batches for record in batch.records]
                assert values == expected, f"the consumer of {where} saw another log"


_DEATHS: dict[str, Callable[[Torture], str]] = {
    "load": Torture._die_under_load,
    "doomed": Torture._die_at_a_call,
    "recovery": Torture._die_in_recovery,
    "doomed recovery": Torture._die_at_a_call_of_recovery,
    "topics": Torture._die_with_topics,
    "compaction": Torture._die_in_compaction,
    "clean": Torture._stop_cleanly,
}


def _create_topic(wire: Wire, name: str, partitions: int, configs: dict[str, str]) -> None:
    entry = {
        "name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [],
        "configs": [{"name": key, "value": value} for key, value in configs.items()],
    }  # fmt: skip
    answer = wire.call(ApiKey.CREATE_TOPICS, 5, {"topics": [entry], "timeout": 30_000, "validate_only": False})
    assert answer.topics[0].error_code == 0, f"{name}: {answer.topics[0].error_message}"


def _spin(seconds: float) -> None:
    """Wait more precisely than sleep."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0)


def _wait_for_file(directory: Path, endings: tuple[str, ...], seconds: float) -> str:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for path in directory.iterdir():
            if path.name.endswith(endings):
                return path.name.lstrip("0")
    return "nothing to see of it"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--seed", type=int, default=None, help="default: another one each time")
    parser.add_argument("--directory", type=Path, default=None, help="where the data goes; kept when something fails")
    args = parser.parse_args()
    seed = random.randrange(10**6) if args.seed is None else args.seed
    directory = args.directory or Path(tempfile.mkdtemp(prefix="ottla-torture-"))
    directory.mkdir(parents=True, exist_ok=True)
    print(f"seed {seed}, data in {directory}", flush=True)
    begin = time.monotonic()
    try:
        summary = Torture(directory, seed, lambda line: print(line, flush=True)).run(args.rounds)
    except Exception as problem:
        if not isinstance(problem, AssertionError):
            traceback.print_exc()
        print(f"\nFAILED (seed {seed}, data kept in {directory}): {problem}", file=sys.stderr)
        return 1
    shutil.rmtree(directory, ignore_errors=True)
    print(
        f"\n{sum(summary.deaths.values())} rounds in {time.monotonic() - begin:.0f} s: "
        f"{summary.acknowledged:,} records acknowledged, all of them there; {summary.verified:,} records read back, "
        f"{summary.topic_operations:,} operations on topics, {summary.recovery_seconds:.1f} s of starting again"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
