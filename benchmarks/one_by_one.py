"""Compare producers that wait for each record before they send the next: `python -m benchmarks.one_by_one`.

All have their default linger.ms. The clients take turns on one broker; the result is the median of the rounds' medians.
The bare socket sends the same bytes again and again, with no client around it: the least that Python needs.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
import kafka

import ottla
from benchmarks.ottla_broker import OttlaBroker
from ottla.protocol import codec
from ottla.protocol.apis import ApiKey
from ottla.records import Record, encode_batch

TOPIC, VALUE, WARM_UP = "one-by-one", bytes(100), 50
Measure = Callable[[str, int], float]


def _median(send: Callable[[], object], records: int) -> float:
    times = []
    for _ in range(records + WARM_UP):
        began = time.perf_counter()
        send()
        times.append(time.perf_counter() - began)
    return statistics.median(times[WARM_UP:])


def ours(address: str, records: int) -> float:
    with ottla.Producer(bootstrap_servers=address) as producer:
        return _median(lambda: producer.send(TOPIC, VALUE).get(), records)


def confluent_flush(address: str, records: int) -> float:
    producer = confluent_kafka.Producer({"bootstrap.servers": address})

    def send() -> None:
        producer.produce(TOPIC, VALUE)
        producer.flush()

    return _median(send, records)


def confluent_callback(address: str, records: int) -> float:
    producer = confluent_kafka.Producer({"bootstrap.servers": address})

    def send() -> None:
        done: list[Any] = []
        producer.produce(TOPIC, VALUE, on_delivery=lambda error, _: done.append(error))
        while not done:
            producer.poll(1)

    return _median(send, records)


def kafka_python(address: str, records: int) -> float:
    producer = kafka.KafkaProducer(bootstrap_servers=address)
    try:
        return _median(lambda: producer.send(TOPIC, VALUE).get(), records)
    finally:
        producer.close()


def bare_socket(address: str, records: int) -> float:
    host, port = address.rsplit(":", 1)
    batch = encode_batch([Record(0, int(time.time() * 1000), None, VALUE)])
    partition = {"index": 0, "records": _Raw(batch)}
    message = {
        "transactional_id": None,
        "acks": -1,
        "timeout": 30_000,
        "topic_data": [{"name": TOPIC, "partition_data": [partition]}],
    }
    frame = codec.encode_request(ApiKey.PRODUCE, 7, 1, "bare", message)
    (position, _), *_ = frame.splices
    request = bytes(frame[:position]) + batch + bytes(frame[position:])

    with socket.create_connection((host, int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def send() -> None:
            connection.sendall(request)
            assert len(connection.recv(1024)) > 4

        return _median(send, records)


class _Raw:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.length = len(data)


CLIENTS: dict[str, Measure] = {
    "ottla, send().get()": ours,
    "confluent-kafka, produce and flush": confluent_flush,
    "confluent-kafka, produce and poll for the callback": confluent_callback,
    "kafka-python, send().get()": kafka_python,
    "a bare socket": bare_socket,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=500)
    options = parser.parse_args()
    found: dict[str, list[float]] = {name: [] for name in CLIENTS}
    with OttlaBroker() as broker:
        with ottla.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics(ottla.NewTopic(TOPIC, 1))
        for _ in range(options.rounds):
            for name, measure in CLIENTS.items():
                found[name].append(measure(broker.bootstrap_servers, options.records))
    first = statistics.median(next(iter(found.values())))
    for name, times in found.items():
        median = statistics.median(times)
        print(f"{name:54}{median * 1e6:8,.0f} µs (best {min(times) * 1e6:,.0f}), ottla / this {first / median:.2f}")


if __name__ == "__main__":
    main()
