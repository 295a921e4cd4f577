"""The cost of transactions: transactions per second, and reading committed records compared with reading all.

    python -m benchmarks.transactions [--seconds 3] [--only ottla]

Our producer and consumer on our broker and, with Java and Maven, on Apache Kafka. One client waits for each commit,
so the figures show latency. Apache Kafka responds to a commit before its markers are written, and delays the first
batch of the next transaction until they are.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator
from uuid import uuid4

from benchmarks.apache_kafka import ApacheKafka
from benchmarks.ottla_broker import OttlaBroker
from benchmarks.peer import Peer, Unavailable
from ottla import Admin, Consumer, NewTopic, Producer, TopicPartition

SIZES = (1, 10, 100)
VALUE = b"x" * 100
READ_RECORDS = 600_000
A_TRANSACTION = 500
REPETITIONS = 3


def transactions_a_second(servers: str, records: int, seconds: float) -> float:
    """Return how many transactions with this many records one producer commits."""
    topic = _topic(servers)
    with Producer(bootstrap_servers=servers, transactional_id=uuid4().hex, linger_ms=0) as producer:
        producer.init_transactions()

        def one() -> None:
            with producer.transaction():
                for _ in range(records):
                    producer.send(topic, VALUE)

        return _rate(one, seconds)


def batches_a_second(servers: str, records: int, seconds: float) -> float:
    """Do the same without transactions: send, and wait for the acknowledgements."""
    topic = _topic(servers)
    with Producer(bootstrap_servers=servers, linger_ms=0) as producer:

        def one() -> None:
            for _ in range(records):
                producer.send(topic, VALUE)
            producer.flush()

        return _rate(one, seconds)


def _rate(one: Callable[[], None], seconds: float) -> float:
    for _ in range(20):
        one()
    start, count = time.perf_counter(), 0
    while (passed := time.perf_counter() - start) < seconds:
        one()
        count += 1
    return count / passed


def records_a_second(servers: str, topic: str, isolation_level: str) -> float:
    """Return how fast one consumer reads a whole topic, best of several tries."""
    best = 0.0
    for _ in range(REPETITIONS):
        key = TopicPartition(topic, 0)
        with Consumer(
            bootstrap_servers=servers, isolation_level=isolation_level, auto_offset_reset="earliest",
            max_poll_records=5_000,
        ) as consumer:  # fmt: skip
            consumer.assign([key])
            start, count = time.perf_counter(), 0
            while count < READ_RECORDS:
                count += len(consumer.poll(5.0))
            best = max(best, count / (time.perf_counter() - start))
    return best


def write_for_reading(servers: str, transactional: bool) -> str:
    topic = _topic(servers)
    options = {"transactional_id": uuid4().hex} if transactional else {}
    with Producer(bootstrap_servers=servers, linger_ms=0, batch_size=200_000, **options) as producer:
        if transactional:
            producer.init_transactions()
        for _ in range(READ_RECORDS // A_TRANSACTION):
            with producer.transaction() if transactional else contextlib.nullcontext():
                for _ in range(A_TRANSACTION):
                    producer.send(topic, VALUE)
                producer.flush()
    return topic


def _topic(servers: str) -> str:
    name = f"bench-{uuid4().hex[:8]}"
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics(NewTopic(name, num_partitions=1))
    return name


def measure(peer: Peer, seconds: float) -> dict[str, float]:
    servers = peer.bootstrap_servers
    figures: dict[str, float] = {}
    for records in SIZES:
        figures[f"transactions/s, {records} record(s)"] = transactions_a_second(servers, records, seconds)
        figures[f"flushes/s without, {records} record(s)"] = batches_a_second(servers, records, seconds)
    plain, in_transactions = write_for_reading(servers, False), write_for_reading(servers, True)
    figures["records/s read, plain topic"] = records_a_second(servers, plain, "read_uncommitted")
    figures["records/s read, transactions, read_uncommitted"] = records_a_second(
        servers, in_transactions, "read_uncommitted"
    )
    figures["records/s read, transactions, read_committed"] = records_a_second(
        servers, in_transactions, "read_committed"
    )
    return figures


def peers(only: str | None) -> Iterator[Peer]:
    for kind in (OttlaBroker, ApacheKafka):
        peer: Peer = kind()
        if only is None or only in peer.name.lower():
            yield peer


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure transactions and the cost of reading them.")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--only", help="part of the name of one broker")
    args = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    for peer in peers(args.only):
        try:
            with peer:
                found[peer.name] = measure(peer, args.seconds)
        except Unavailable as error:
            print(f"{peer.name} is left out: {error}")
    for name in next(iter(found.values()), {}):
        figures = [figures[name] for figures in found.values()]
        ratio = f"   ratio {figures[0] / figures[1]:.2f}" if len(figures) == 2 else ""
        told = "   ".join(f"{peer} {value:>10,.0f}" for peer, value in zip(found, figures, strict=True))
        print(f"{name:<50} {told}{ratio}")


if __name__ == "__main__":
    main()
