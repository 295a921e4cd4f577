"""A single broker with data becomes a cluster of three, with a producer and a consumer running.

    python -m benchmarks.growing [--gb 5]

The broker is filled, started again as the first member of a cluster, two brokers join, and all partitions get three
replicas. Meanwhile one process writes numbers with acks=all and another one reads them. At the end every number must
have been read once and in order. The table says how long each step took, and what it cost.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import threading
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

import ottla
from benchmarks import load
from benchmarks.clusters import CONFIG
from benchmarks.ottla_broker import OttlaBroker
from benchmarks.peer import cpu_seconds_of
from ottla.cluster.zookeeper import LocalZooKeeper

DATA, LIVE = "data", "live"
PARTITIONS = 6
PATIENCE = 900.0


class Writer:
    """Writes numbers to one partition until it is stopped."""

    def __init__(self, servers: str) -> None:
        self.acknowledged = 0
        self.longest_pause = 0.0
        self._last = time.monotonic()
        self._over = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": servers, "acks": "all", "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._over.is_set():
            self._producer.produce(LIVE, str(number).encode(), partition=0, on_delivery=self._delivered)
            number += 1
            self._producer.poll(0.001)

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            raise RuntimeError(f"a record was refused: {error}")
        now = time.monotonic()
        self.longest_pause = max(self.longest_pause, now - self._last)
        self._last = now
        self.acknowledged += 1

    def stop(self) -> None:
        self._over.set()
        self._thread.join()
        if unsent := self._producer.flush(60):
            raise RuntimeError(f"{unsent} records were never acknowledged")


class Reader:
    """Reads the numbers and checks that each comes once and in order."""

    def __init__(self, servers: str) -> None:
        self.read = 0
        self.problem: str | None = None
        self._over = threading.Event()
        self._consumer = Consumer(
            {"bootstrap.servers": servers, "group.id": "growing", "auto.offset.reset": "earliest", "log_level": 0}
        )
        self._consumer.assign([TopicPartition(LIVE, 0, 0)])
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            for message in self._consumer.consume(500, 0.2):
                if message.error() is None:
                    value = int(message.value() or b"-1")
                    if value != self.read and self.problem is None:
                        self.problem = f"offset {message.offset()} has {value}, not {self.read}"
                    self.read += 1

    def stop(self, records: int) -> None:
        deadline = time.monotonic() + 60
        while self.read < records and time.monotonic() < deadline:
            time.sleep(0.05)
        self._over.set()
        self._thread.join()
        self._consumer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=5.0, help="how much data the single broker has")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="growing-")))
        zookeeper = stack.enter_context(LocalZooKeeper(directory / "zookeeper"))
        address = f"{zookeeper.address}/growing"
        first = stack.enter_context(OttlaBroker({"node.id": 1}, data_dir=directory / "1"))
        step("filling one broker")
        load.create_topic(first, DATA, PARTITIONS)
        load.create_topic(first, LIVE, 1)
        load.produce(first, DATA, size=1024, records=int(options.gb * 1e9) // 1024)
        others = [
            OttlaBroker({**CONFIG, "node.id": number, "zookeeper.connect": address}, data_dir=directory / str(number))
            for number in (2, 3)
        ]
        servers = ",".join(each.bootstrap_servers for each in (first, *others))
        writer, reader = Writer(servers), Reader(servers)
        try:
            grow(stack, first, others, address)
        finally:
            writer.stop()
            reader.stop(writer.acknowledged)
        done = f"{writer.acknowledged:,} records written meanwhile, {reader.read:,} read"
        print(f"{done}; the longest pause between two acknowledgements was {writer.longest_pause:.2f} s")
        if reader.problem is not None or reader.read != writer.acknowledged:
            raise SystemExit(f"LOST OR REPEATED: {reader.problem or 'not everything was read'}")
        print("nothing was lost or repeated")


def grow(stack: contextlib.ExitStack, first: OttlaBroker, others: list[OttlaBroker], address: str) -> None:
    begin = time.monotonic()
    step("starting it again as the first broker of a cluster")
    first.stop()
    first.config |= {**CONFIG, "node.id": "1", "zookeeper.connect": address, "min.insync.replicas": "1"}
    first.prepare()
    first.start()
    joined = time.monotonic()
    step("starting two more brokers")
    for broker in others:
        stack.enter_context(broker)
    started, before = time.monotonic(), cpu(first, *others)
    step("adding replicas")
    with ottla.Admin(bootstrap_servers=first.bootstrap_servers) as admin:
        places = [ottla.TopicPartition(DATA, number) for number in range(PARTITIONS)] + [ottla.TopicPartition(LIVE, 0)]
        wanted = {place: [(1, 2, 3), (2, 3, 1), (3, 1, 2)][place.partition % 3] for place in places}
        admin.alter_partition_reassignments(wanted)
        while admin.list_partition_reassignments():
            if time.monotonic() - started > PATIENCE:
                raise SystemExit(f"the replicas were not in sync after {PATIENCE:g} s")
            time.sleep(0.2)
        admin.elect_leaders("preferred")
    seconds, used = time.monotonic() - started, cpu(first, *others) - before
    print(f"restart as a member {joined - begin:.1f} s, two brokers joined {started - joined:.1f} s")
    print(f"replicas in sync after {seconds:.1f} s, with {used / seconds:.2f} cores of the brokers")


def cpu(*brokers: OttlaBroker) -> float:
    return sum(cpu_seconds_of(broker.pid) for broker in brokers)


def step(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


if __name__ == "__main__":
    main()
