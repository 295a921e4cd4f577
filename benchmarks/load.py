"""Start `benchmarks.client` processes on one broker at the same time and add up their results.

This file has the settings of the clients, which are the same for every broker. They are librdkafka's defaults, unless a
default would make the client wait for itself.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from benchmarks.memory import fill_page_cache
from benchmarks.peer import Peer, machine_cpu_seconds

ROOT = Path(__file__).resolve().parent.parent
PARTITIONS = 4
CLIENTS = 2

PRODUCER = {"acks": "all", "queue.buffering.max.messages": 2_000_000, "socket.nagle.disable": True}
CONSUMER = {
    "group.id": "benchmark",
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "fetch.queue.backoff.ms": 5,
    "socket.nagle.disable": True,
}
# For a client that waits for a starting broker, so that it does not measure its own backoff.
IMPATIENT = {
    "reconnect.backoff.ms": 1,
    "reconnect.backoff.max.ms": 5,
    "retry.backoff.ms": 2,
    "topic.metadata.refresh.fast.interval.ms": 5,
    "log_level": 0,
}


@dataclass
class Totals:
    """The combined results of all clients."""

    records: int
    seconds: float
    broker_cpu: float
    other_cpu: float
    clients: list[dict[str, Any]] = field(repr=False)

    @property
    def client_cores(self) -> float:
        return sum(float(client["cpu"]) for client in self.clients) / self.seconds

    @property
    def busiest_client_thread(self) -> float:
        """The share of time that the busiest thread of a client was on a core, for the least busy client."""
        return min(float(client["busiest"]) for client in self.clients)

    @property
    def broker_cores(self) -> float:
        return self.broker_cpu / self.seconds

    @property
    def other_cores(self) -> float:
        """The CPU time of the rest of the machine, including kernel threads."""
        return self.other_cpu / self.seconds


class Client:
    """One `benchmarks.client` process that is ready to start."""

    def __init__(self, peer: Peer, job: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        whole = {**job, "config": {"bootstrap.servers": peer.bootstrap_servers, "log_level": 2, **config}}
        self._role = f"{job['role']} client of {peer.name}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.client", json.dumps(whole)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def wait_until_ready(self) -> None:
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise self._failure()

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def result(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._failure()
        result: dict[str, Any] = json.loads(line)
        if result.get("unsent"):
            raise RuntimeError(f"the {self._role} had {result['unsent']} records that were never acknowledged")
        return result

    def _failure(self) -> RuntimeError:
        self._process.kill()
        return RuntimeError(f"the {self._role} failed:\n{self._process.communicate()[1]}")


def run_together(peer: Peer, clients: list[Client]) -> Totals:
    """Start ready clients at the same time and wait for them."""
    broker_before, machine_before = peer.cpu_seconds(), machine_cpu_seconds()
    for client in clients:
        client.go()
    results = [client.result() for client in clients]
    broker, machine = peer.cpu_seconds() - broker_before, machine_cpu_seconds() - machine_before
    others = max(0.0, machine - broker - sum(result["cpu"] for result in results))
    seconds = max(result["ended"] for result in results) - min(result["started"] for result in results)
    return Totals(sum(result["records"] for result in results), seconds, broker, others, results)


def run_same(peer: Peer, job: Mapping[str, Any], config: Mapping[str, Any] | None = None) -> Totals:
    """Run `CLIENTS` processes with the same job."""
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(Client(peer, job, config or {})) for _ in range(CLIENTS)]
        for client in running:
            client.wait_until_ready()
        return run_together(peer, running)


def produce(peer: Peer, topic: str, *, size: int, records: int, config: Mapping[str, Any] | None = None) -> Totals:
    """Fill the topic from several processes."""
    fill_page_cache()
    job = {"role": "produce", "topic": topic, "size": size, "records": records // CLIENTS}
    return run_same(peer, job, {**PRODUCER, **(config or {})})


def consume(peer: Peer, topic: str, *, records: int) -> Totals:
    """Read the whole topic in each process."""
    return run_same(peer, {"role": "consume", "topic": topic, "records": records}, CONSUMER)


def create_topic(peer: Peer, topic: str, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": peer.bootstrap_servers, "log_level": 2})
    created = admin.create_topics(
        [NewTopic(topic, partitions, peer.replication_factor)], operation_timeout=30, request_timeout=60
    )
    for future in created.values():
        future.result()


def delete_topic(peer: Peer, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": peer.bootstrap_servers, "log_level": 2})
    for future in admin.delete_topics([topic], operation_timeout=30, request_timeout=60).values():
        future.result()


def records_in(peer: Peer, topic: str) -> int:
    """Return the number of records of the topic, from its offsets."""
    consumer = Consumer({"bootstrap.servers": peer.bootstrap_servers, "group.id": "benchmark", "log_level": 2})
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        bounds = [consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=10) for p in partitions]
    except KafkaException as problem:
        raise RuntimeError(f"{peer.name} does not say what {topic} holds: {problem}") from problem
    finally:
        consumer.close()
    return sum(high - low for low, high in bounds)
