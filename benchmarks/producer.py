"""Compare our producer with confluent-kafka, kafka-python and aiokafka on one broker, record by record.

    python -m benchmarks.producer [--quick] [--rounds 5] [--batch-size 16384] [--partitions 4] [--only ottla,confluent]

Each client has its own process. It sends each record with the plain call of its API (`send`, `produce`), with the
same batch.size, linger.ms, compression and acks=all. The time ends when the last record is acknowledged. The clients
take turns. The result is the median of the rounds. The ratios to confluent-kafka matter most. To add a client, add a
function.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.memory import fill_page_cache
from benchmarks.ottla_broker import OttlaBroker
from benchmarks.values import values

ROOT = Path(__file__).resolve().parent.parent
#: The share of the records that a client sends per round. Slow clients would take minutes for all.
SHARES = {"ottla": 1.0, "ottla-aio": 1.0, "confluent": 1.0, "kafka-python": 0.05, "aiokafka": 0.1}
BUFFER_BYTES = 64 * 1024 * 1024

Job = dict[str, Any]


def ottla(job: Job) -> float:
    from ottla.clients.producer.blocking import Producer

    payloads, topic = values(job["size"]), job["topic"]
    with Producer(
        bootstrap_servers=job["bootstrap"],
        batch_size=job["batch_size"],
        linger_ms=job["linger_ms"],
        compression_type=job["compression"],
        buffer_memory=BUFFER_BYTES,
    ) as producer:
        for partition in producer.partitions_for(topic):
            producer.send(topic, payloads[0], partition=partition).result(30)
        began = time.perf_counter()
        send, rounds = producer.send, job["records"] // len(payloads)
        for _ in range(rounds):
            for payload in payloads:
                send(topic, payload)
        producer.flush()
        seconds = time.perf_counter() - began
        assert producer.metrics()["record-error-total"] == 0
    return rounds * len(payloads) / seconds


def ottla_aio(job: Job) -> float:
    from ottla.clients.producer.asynchronous import AsyncProducer
    from ottla.runtime.loops import new_event_loop

    payloads, topic = values(job["size"]), job["topic"]

    async def run() -> float:
        async with AsyncProducer(
            bootstrap_servers=job["bootstrap"],
            batch_size=job["batch_size"],
            linger_ms=job["linger_ms"],
            compression_type=job["compression"],
            buffer_memory=BUFFER_BYTES,
        ) as producer:
            for partition in await producer.partitions_for(topic):
                await producer.send_and_wait(topic, payloads[0], partition=partition)
            began = time.perf_counter()
            rounds = job["records"] // len(payloads)
            for _ in range(rounds):
                for payload in payloads:
                    await producer.send(topic, payload)
            await producer.flush()
            return rounds * len(payloads) / (time.perf_counter() - began)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(run())


def confluent(job: Job) -> float:
    from confluent_kafka import Producer

    payloads, topic = values(job["size"]), job["topic"]
    producer = Producer(
        {
            "bootstrap.servers": job["bootstrap"],
            "acks": "all",
            "enable.idempotence": True,
            "batch.size": job["batch_size"],
            "linger.ms": job["linger_ms"],
            "compression.type": job["compression"],
            "queue.buffering.max.messages": 10_000_000,
            "queue.buffering.max.kbytes": BUFFER_BYTES // 1024,
        }
    )
    for partition in producer.list_topics(topic).topics[topic].partitions:
        producer.produce(topic, payloads[0], partition=partition)
    producer.flush(30)
    began = time.perf_counter()
    produce, rounds = producer.produce, job["records"] // len(payloads)
    for _ in range(rounds):
        for payload in payloads:
            try:
                produce(topic, payload)
            except BufferError:
                while True:
                    producer.poll(0.001)
                    try:
                        produce(topic, payload)
                        break
                    except BufferError:
                        pass
    left = producer.flush(120)
    seconds = time.perf_counter() - began
    assert left == 0
    return rounds * len(payloads) / seconds


def kafka_python(job: Job) -> float:
    from kafka import KafkaProducer

    payloads, topic = values(job["size"]), job["topic"]
    producer = KafkaProducer(
        bootstrap_servers=job["bootstrap"],
        acks="all",
        enable_idempotence=True,
        batch_size=job["batch_size"],
        linger_ms=job["linger_ms"],
        compression_type=None if job["compression"] == "none" else job["compression"],
    )
    producer.send(topic, payloads[0]).get(30)
    began = time.perf_counter()
    for number in range(job["records"]):
        producer.send(topic, payloads[number % len(payloads)])
    producer.flush()
    seconds = time.perf_counter() - began
    producer.close()
    return job["records"] / seconds


def aiokafka(job: Job) -> float:
    from aiokafka import AIOKafkaProducer

    payloads, topic = values(job["size"]), job["topic"]

    async def run() -> float:
        producer = AIOKafkaProducer(
            bootstrap_servers=job["bootstrap"],
            acks="all",
            enable_idempotence=True,
            max_batch_size=job["batch_size"],
            linger_ms=job["linger_ms"],
            compression_type=None if job["compression"] == "none" else job["compression"],
        )
        await producer.start()
        await producer.send_and_wait(topic, payloads[0])
        began = time.perf_counter()
        for number in range(job["records"]):
            await producer.send(topic, payloads[number % len(payloads)])
        await producer.flush()
        seconds = time.perf_counter() - began
        await producer.stop()
        return float(job["records"] / seconds)

    return asyncio.run(run())


CLIENTS: dict[str, Callable[[Job], float]] = {
    "ottla": ottla,
    "ottla-aio": ottla_aio,
    "confluent": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}


def measure(name: str, job: Job) -> float:
    """Run one round of one client in its own process."""
    fill_page_cache()
    whole = {**job, "records": max(1000, int(job["records"] * SHARES[name]))}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.producer", "--job", json.dumps({**whole, "client": name})],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=300,
    )
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr}")
    return float(done.stdout.strip().splitlines()[-1])


def create_topic(bootstrap: str, name: str, partitions: int) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)


def compare(options: argparse.Namespace) -> None:
    names = [name for name in CLIENTS if not options.only or name in options.only.split(",")]
    bootstrap = options.bootstrap
    cases = [(size, codec) for codec in options.compression.split(",") for size in (100, 1024)]
    for size, codec in cases:
        records = int((1_000_000 if size == 100 else 300_000) * (0.4 if options.quick else 1))
        rates: dict[str, list[float]] = {name: [] for name in names}
        for number in range(options.rounds):
            for name in names:
                topic = f"producers-{size}-{codec}-{number}-{name}"
                create_topic(bootstrap, topic, options.partitions)
                job = {
                    "bootstrap": bootstrap,
                    "topic": topic,
                    "size": size,
                    "records": records,
                    "compression": codec,
                    "batch_size": options.batch_size,
                    "linger_ms": options.linger_ms,
                }
                rates[name].append(measure(name, job))
        print(f"{size} B, {codec}, batch.size {options.batch_size}, {options.partitions} partitions")
        for name, found in rates.items():
            median, best = statistics.median(found), max(found)
            print(f"  {name:14}{median:12,.0f} records/s {median * size / 1e6:8.1f} MB/s", end="")
            if peer := rates.get("confluent"):
                print(f"{median / statistics.median(peer):8.2f} x confluent", end="")
                print(f" (the best rounds: {best:11,.0f}, {best / max(peer):.2f})", end="")
            print(flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="fewer records")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=16_384)
    parser.add_argument("--linger-ms", type=int, default=5)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--compression", default="none,lz4")
    parser.add_argument("--only", help=f"some of {', '.join(CLIENTS)}")
    parser.add_argument("--bootstrap", help="a running broker (default: start one)")
    options = parser.parse_args()
    if options.job:
        job = json.loads(options.job)
        print(CLIENTS[job["client"]](job))
    elif options.bootstrap:
        compare(options)
    else:
        with OttlaBroker() as broker:
            options.bootstrap = broker.bootstrap_servers
            compare(options)


if __name__ == "__main__":
    main()
