"""How long a test waits for a broker: from nothing to the first acknowledged record, and to the end.

    python -m benchmarks.starting_tests

Each runs in this process, after its imports, several times; the median is shown. The mock of librdkafka is part of
confluent-kafka. mockafka has no broker: it replaces the client's classes.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from confluent_kafka import Producer as ConfluentProducer

from ottla import Broker, Cluster, Producer

REPETITIONS = 5


def main() -> None:
    with Broker() as broker:
        _send(broker.bootstrap_servers)
        prepared = broker.snapshot()
    ways: dict[str, tuple[Callable[[], float], int]] = {
        "ottla.Broker()": (lambda: _timed(Broker), REPETITIONS),
        "ottla.Broker(from_snapshot=…)": (lambda: _timed(lambda: Broker(from_snapshot=prepared)), REPETITIONS),
        "ottla.Broker(tls=True)": (_secured, REPETITIONS),
        "python -m ottla.testing": (_process, REPETITIONS),
        "ottla.Cluster(brokers=3)": (lambda: _timed(lambda: Cluster(brokers=3)), 3),
        "librdkafka's mock, 3 brokers": (_librdkafka, REPETITIONS),
    }
    for name, (measure, repetitions) in ways.items():
        times = [measure() for _ in range(repetitions)]
        sys.stdout.write(f"{name:34} {statistics.median(times) * 1000:8.0f} ms\n")


def _send(servers: str) -> None:
    with Producer(bootstrap_servers=servers, linger_ms=0) as producer:
        producer.send("orders", b"an order").get(30)


def _timed(make: Callable[[], Broker | Cluster]) -> float:
    begin = time.monotonic()
    with make() as broker:
        _send(broker.bootstrap_servers)
        return time.monotonic() - begin


def _secured() -> float:
    begin = time.monotonic()
    with Broker(tls=True) as broker, Producer(broker.client_config(), linger_ms=0) as producer:
        producer.send("orders", b"an order").get(30)
        return time.monotonic() - begin


def _process() -> float:
    begin = time.monotonic()
    with subprocess.Popen([sys.executable, "-m", "ottla.testing"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        _send(process.stdout.readline().strip())
        taken = time.monotonic() - begin
        process.terminate()
    return taken


def _librdkafka() -> float:
    begin = time.monotonic()
    told: list[float] = []
    producer = ConfluentProducer({"bootstrap.servers": "unused", "test.mock.num.brokers": 3, "log_level": 0})
    producer.produce("orders", b"an order", on_delivery=lambda error, message: told.append(time.monotonic()))
    producer.flush(30)
    return told[0] - begin


if __name__ == "__main__":
    main()
