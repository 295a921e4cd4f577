"""Compare tables with confluent-kafka: `python -m benchmarks.columns [--rounds 3] [--compression lz4]`.

`send_arrow` writes a table and `poll_arrow` reads it. confluent-kafka can only do this record by record. It uses
equally large batches and up to 10,000 records per call. Each client has its own process and the same broker. They
take turns. The result is the best round. The ratios matter most.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.memory import fill_page_cache
from benchmarks.ottla_broker import OttlaBroker
from benchmarks.values import values

PARTITIONS = 4
BYTES = 400_000_000
SIZES = (100, 1_000)
#: The largest batch that a broker accepts by default.
BATCH_BYTES = 1_000_000
BUFFER_BYTES = 64 * 1024 * 1024
#: Without this librdkafka pauses for a second when its queue is full.
FETCH = {"fetch.queue.backoff.ms": 5, "queued.min.messages": 1_000_000}

Job = dict[str, Any]


def arrow_in(job: Job) -> float:
    import pyarrow as pa

    from ottla.clients.producer.blocking import Producer

    payloads = values(job["size"])
    rounds = job["records"] // len(payloads)
    table = pa.table({"value": pa.array(payloads * min(rounds, 1_000_000 // len(payloads)), pa.large_binary())})
    options = {"compression_type": job["compression"], "buffer_memory": BUFFER_BYTES}
    with Producer(bootstrap_servers=job["bootstrap"], **options) as producer:
        producer.send_arrow(job["topic"], table.slice(0, 1)).result(30)
        futures, sent, began = [], 0, time.perf_counter()
        while sent < job["records"]:
            part = table.slice(0, job["records"] - sent)
            futures.append(producer.send_arrow(job["topic"], part))
            sent += part.num_rows
        written = sum(future.result(60).records for future in futures)
        seconds = time.perf_counter() - began
    assert written == job["records"]
    return written / seconds


def confluent_in(job: Job) -> float:
    from confluent_kafka import Producer

    payloads, topic = values(job["size"]), job["topic"]
    producer = Producer(
        {
            "bootstrap.servers": job["bootstrap"],
            "compression.type": job["compression"],
            "batch.size": BATCH_BYTES,
            "batch.num.messages": 100_000,
            "linger.ms": 50,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": BUFFER_BYTES // 1024,
            "enable.idempotence": True,
        }
    )
    producer.produce(topic, payloads[0])
    producer.flush(30)
    produce, began = producer.produce, time.perf_counter()
    for _ in range(job["records"] // len(payloads)):
        for payload in payloads:
            try:
                produce(topic, payload)
            except BufferError:
                while len(producer) > 400_000 or _full(producer, topic, payload):
                    producer.poll(0.01)
    left = producer.flush(120)
    seconds = time.perf_counter() - began
    assert left == 0
    return float(job["records"] / seconds)


def _full(producer: Any, topic: str, payload: bytes) -> bool:
    try:
        producer.produce(topic, payload)
    except BufferError:
        return True
    return False


def arrow_out(job: Job) -> float:
    import pyarrow.compute as pc

    from ottla.clients.consumer.blocking import Consumer
    from ottla.types import TopicPartition

    with Consumer(bootstrap_servers=job["bootstrap"], auto_offset_reset="earliest", **job["fetch"]) as consumer:
        consumer.assign([TopicPartition(job["topic"], number) for number in range(PARTITIONS)])
        seen, size, began = 0, 0, time.perf_counter()
        while seen < job["records"]:
            table = consumer.poll_arrow(10.0)
            seen += table.num_rows
            size += pc.sum(pc.binary_length(table["value"])).as_py() or 0
        seconds = time.perf_counter() - began
    assert size == seen * job["size"]
    return seen / seconds


def confluent_out(job: Job) -> float:
    from confluent_kafka import Consumer, TopicPartition

    fetch = {name.replace("_", "."): value for name, value in job["fetch"].items()}
    consumer = Consumer(
        {"bootstrap.servers": job["bootstrap"], "group.id": "bench", "enable.auto.commit": False, **FETCH, **fetch}
    )
    consumer.assign([TopicPartition(job["topic"], number, 0) for number in range(PARTITIONS)])
    seen, size, began = 0, 0, time.perf_counter()
    while seen < job["records"]:
        # Not more than exist, or it would wait for the rest.
        for message in consumer.consume(min(10_000, job["records"] - seen), 1.0):
            size += len(message.value())
            seen += 1
    seconds = time.perf_counter() - began
    assert size == seen * job["size"]
    consumer.close()
    return seen / seconds


CLIENTS: dict[str, Callable[[Job], float]] = {
    "ottla send_arrow": arrow_in,
    "confluent-kafka produce": confluent_in,
    "ottla poll_arrow": arrow_out,
    "confluent-kafka consume": confluent_out,
}
SHARES = {"confluent-kafka produce": 0.25, "confluent-kafka consume": 0.25}
"""They get only this part of the records: they would take long."""


def run_one(name: str, job: Job) -> float:
    command = [sys.executable, "-m", "benchmarks.columns", "--client", name, "--job", json.dumps(job)]
    fill_page_cache()
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr[-2000:]}")
    return float(done.stdout.split()[-1])


def measure(bootstrap: str, size: int, options: argparse.Namespace) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    fetch = {"max_partition_fetch_bytes": options.fetch_bytes} if options.fetch_bytes else {}
    best: dict[str, float] = {}
    for number in range(options.rounds):
        topic = f"columns-{size}-{number}"
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
        job = {"bootstrap": bootstrap, "topic": topic, "size": size, "compression": options.compression, "fetch": fetch}
        for name in CLIENTS:
            records = int(options.bytes / size * SHARES.get(name, 1.0)) // 1000 * 1000
            best[name] = max(best.get(name, 0.0), run_one(name, {**job, "records": records}))
        admin.delete_topics([topic])[topic].result(30)
    names = list(CLIENTS)
    for ours, theirs in (names[:2], names[2:]):
        what = f"{size:>5} B  {options.compression:<5} {ours:<17} {best[ours]:>12,.0f}/s"
        print(f"{what}   {theirs} {best[theirs]:>11,.0f}/s   {best[ours] / best[theirs]:5.1f} times", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare tables in and out with confluent-kafka.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bytes", type=int, default=BYTES, help="bytes of values per round")
    parser.add_argument("--size", type=int, action="append", help="bytes of a value (default: 100 and 1000)")
    parser.add_argument("--compression", default="none")
    parser.add_argument("--fetch-bytes", type=int, help="max.partition.fetch.bytes of both consumers")
    parser.add_argument("--client", choices=CLIENTS, help=argparse.SUPPRESS)
    parser.add_argument("--job", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        print(CLIENTS[options.client](options.job))
        return
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with OttlaBroker() as broker:
        for size in options.size or SIZES:
            measure(broker.bootstrap_servers, size, options)


if __name__ == "__main__":
    main()
