"""Compare our consumer with confluent-kafka, kafka-python and aiokafka on one broker.

    python -m benchmarks.consumer [--rounds 5] [--scale 2] [--servers host:port]

Each client has its own process. It reads the same topic from the beginning, with assigned partitions, and uses the
value of each record. Each round runs all clients, so that other load on the machine affects all of them. The table
shows the medians. CPU time is that of the whole client process, including library threads. It shows the cost where
the machine or the broker limits the rate. To add a client, add a function to READERS.
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
from itertools import islice
from typing import Any

from benchmarks.memory import fill_page_cache
from benchmarks.ottla_broker import OttlaBroker
from benchmarks.values import values

PARTITIONS = 4
SIZES = {100: 2_000_000, 1_000: 2_000_000}  # enough to hide the start of a client
FASTEST_PEER = "confluent-kafka consume()"

Start = tuple[float, float]
Result = tuple[float, float]
"""Records a second, and seconds of processor time for a million of them."""


def clocks() -> Start:
    return time.perf_counter(), time.process_time()


# ── the clients, each in its own process ─────────────────────────────────────────────────────────────────────────


def ottla_poll(job: dict[str, Any]) -> Result:
    from ottla.clients.consumer.blocking import Consumer
    from ottla.types import TopicPartition

    with Consumer(bootstrap_servers=job["servers"], auto_offset_reset="earliest", **job["ottla"]) as consumer:
        consumer.assign([TopicPartition(job["topic"], number) for number in range(PARTITIONS)])
        seen, size, started = 0, 0, clocks()
        while seen < job["records"]:
            records = consumer.poll(10.0)
            for record in records:
                size += len(record.value)
            seen += len(records)
        return checked(job, seen, size, started)


def ottla_iteration(job: dict[str, Any]) -> Result:
    from ottla.clients.consumer.blocking import Consumer
    from ottla.types import TopicPartition

    with Consumer(bootstrap_servers=job["servers"], auto_offset_reset="earliest", **job["ottla"]) as consumer:
        consumer.assign([TopicPartition(job["topic"], number) for number in range(PARTITIONS)])
        seen, size, started = 0, 0, clocks()
        for record in islice(consumer, job["records"]):
            size += len(record.value)
            seen += 1
        return checked(job, seen, size, started)


def ottla_asyncio(job: dict[str, Any]) -> Result:
    from ottla.clients.consumer.asynchronous import AsyncConsumer
    from ottla.runtime.loops import new_event_loop
    from ottla.types import TopicPartition

    async def read() -> Result:
        async with AsyncConsumer(bootstrap_servers=job["servers"], auto_offset_reset="earliest") as consumer:
            await consumer.assign([TopicPartition(job["topic"], number) for number in range(PARTITIONS)])
            seen, size, started = 0, 0, clocks()
            async for record in consumer:
                size += len(record.value)
                seen += 1
                if seen == job["records"]:
                    break
            return checked(job, seen, size, started)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(read())


def _confluent(job: dict[str, Any]) -> Any:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": job["servers"], "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(job["topic"], number, 0) for number in range(PARTITIONS)])
    return consumer


def confluent_consume(job: dict[str, Any]) -> Result:
    consumer = _confluent(job)
    seen, size, started = 0, 0, clocks()
    while seen < job["records"]:
        messages = consumer.consume(500, 1.0)
        for message in messages:
            size += len(message.value())
        seen += len(messages)
    return checked(job, seen, size, started)


def confluent_poll(job: dict[str, Any]) -> Result:
    consumer = _confluent(job)
    seen, size, started = 0, 0, clocks()
    while seen < job["records"]:
        message = consumer.poll(10.0)
        if message is not None:
            size += len(message.value())
            seen += 1
    return checked(job, seen, size, started)


def kafka_python(job: dict[str, Any]) -> Result:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=job["servers"], auto_offset_reset="earliest", enable_auto_commit=False)
    consumer.assign([TopicPartition(job["topic"], number) for number in range(PARTITIONS)])
    seen, size, started = 0, 0, clocks()
    while seen < job["records"]:
        for records in consumer.poll(timeout_ms=10_000).values():
            for record in records:
                size += len(record.value)
            seen += len(records)
    return checked(job, seen, size, started)


def aiokafka_getmany(job: dict[str, Any]) -> Result:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def read() -> Result:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=job["servers"], auto_offset_reset="earliest", enable_auto_commit=False
        )
        await consumer.start()
        consumer.assign([TopicPartition(job["topic"], number) for number in range(PARTITIONS)])
        seen, size, started = 0, 0, clocks()
        while seen < job["records"]:
            for records in (await consumer.getmany(timeout_ms=10_000, max_records=500)).values():
                for record in records:
                    size += len(record.value)
                seen += len(records)
        rate = checked(job, seen, size, started)
        await consumer.stop()
        return rate

    return asyncio.run(read())


READERS: dict[str, Callable[[dict[str, Any]], Result]] = {
    "ottla poll()": ottla_poll,
    "ottla iteration": ottla_iteration,
    "ottla asyncio iteration": ottla_asyncio,
    FASTEST_PEER: confluent_consume,
    "confluent-kafka poll()": confluent_poll,
    "kafka-python poll()": kafka_python,
    "aiokafka getmany()": aiokafka_getmany,
}
SLOW = {"kafka-python poll()": 16, "aiokafka getmany()": 8, "confluent-kafka poll()": 4}
"""They read only this part of the topic."""


def checked(job: dict[str, Any], seen: int, size: int, started: Start) -> Result:
    """The result of one client. It must have read what was written."""
    seconds, cpu = time.perf_counter() - started[0], time.process_time() - started[1]
    if size != seen * job["size"]:
        raise SystemExit(f"{seen} records have {size} bytes, not {seen * job['size']}")
    return seen / seconds, cpu / seen * 1e6


# ── the run ───────────────────────────────────────────────────────────────────────────────────────────────────────


def fill(servers: str, topic: str, size: int, records: int) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "batch.size": 131_072})
    payloads = values(size)
    for number in range(records):
        while len(producer) > 90_000:
            producer.poll(0.01)
        producer.produce(topic, payloads[number % len(payloads)], partition=number % PARTITIONS)
    if producer.flush(120):
        raise SystemExit("not everything was written")


def run_one(name: str, job: dict[str, Any]) -> Result:
    fill_page_cache()
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.consumer", "--client", name, "--job", json.dumps(job)],
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr[-2000:]}")
    rate, cpu = done.stdout.split()[-2:]
    return float(rate), float(cpu)


def measure(servers: str, size: int, records: int, rounds: int, only: list[str]) -> dict[str, Result]:
    topic = f"bench-{size}"
    fill(servers, topic, size, records)
    results: dict[str, list[Result]] = {}
    for _ in range(rounds):
        for name in only:
            count = records // SLOW.get(name, 1)
            job = {"servers": servers, "topic": topic, "records": count, "size": size, "ottla": {}}
            results.setdefault(name, []).append(run_one(name, job))
    return {
        name: (statistics.median(rate for rate, _ in found), statistics.median(cpu for _, cpu in found))
        for name, found in results.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the amount of data")
    parser.add_argument("--only", action="append", choices=READERS, help="only this client (may be repeated)")
    parser.add_argument("--servers", help="a running broker (default: start one)")
    parser.add_argument("--client", choices=READERS, help=argparse.SUPPRESS)
    parser.add_argument("--job", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.client:
        print(*READERS[args.client](args.job))
        return
    if args.servers:
        report(args, args.servers)
        return
    with OttlaBroker() as broker:
        report(args, broker.bootstrap_servers)


def report(args: argparse.Namespace, servers: str) -> None:
    only = args.only or list(READERS)
    for size, records in SIZES.items():
        found = measure(servers, size, int(records * args.scale), args.rounds, only)
        peer = found.get(FASTEST_PEER)
        print(f"\n{size:4} B records                   records/s     MB/s  CPU s/million      ratio to {FASTEST_PEER}")
        for name, (rate, cpu) in found.items():
            ratio = f"{rate / peer[0]:12.2f} of its rate, {cpu / peer[1]:5.2f} of its CPU" if peer else ""
            print(f"{name:28}{rate:12,.0f}{rate * size / 1e6:9.1f}{cpu:17.2f}{ratio}", flush=True)


if __name__ == "__main__":
    main()
