"""A librdkafka client process that produces, consumes or paces in a benchmark.

`python -m benchmarks.client '{"role": "produce", ...}'` connects, prints `ready`, starts at the first line on stdin,
and prints its results as one line of JSON. `benchmarks.load` starts these processes. A new load is a new role here.
Times are CLOCK_MONOTONIC, which all processes of a machine share.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from benchmarks import wire
from benchmarks.values import values

CHUNK = 1000  # messages per call to librdkafka
QUEUED_BYTES = 64_000_000  # the most queued bytes: enough to never run dry, but few for the caches
STAMP = struct.Struct(">q")

Job = dict[str, Any]
Step = Callable[[], dict[str, Any]]


def main() -> None:
    job: Job = json.loads(sys.argv[1])
    run = ROLES[job["role"]](job)
    print("ready", flush=True)
    if not sys.stdin.readline():
        return
    before = thread_seconds()
    started = time.monotonic()
    result = run()
    ended = result.setdefault("ended", time.monotonic())
    used = {thread: seconds - before.get(thread, 0.0) for thread, seconds in thread_seconds().items()}
    result |= {
        "started": started,
        "cpu": sum(used.values()),
        "busiest": max(used.values()) / (ended - started),
    }
    print(json.dumps(result), flush=True)


def producing(job: Job) -> Step:
    """Send `records` values of `size` bytes as fast as possible, then wait for all acknowledgements."""
    producer = Producer(job["config"])
    topic, size, records = job["topic"], job["size"], job["records"]
    chunks = chunked(values(size))
    limit = max(2 * CHUNK, QUEUED_BYTES // size)
    _send_first(producer, topic, size)

    def run() -> dict[str, Any]:
        for number in range(records // CHUNK):
            while len(producer) > limit:
                producer.poll(0.005)
            send_chunk(producer, topic, chunks[number % len(chunks)])
        return {"records": records // CHUNK * CHUNK, "unsent": producer.flush(120)}

    return run


def _send_first(producer: Producer, topic: str, size: int) -> None:
    """Send one acknowledged record to each partition, to set up connection, metadata and producer id."""
    for partition in producer.list_topics(topic).topics[topic].partitions:
        producer.produce(topic, bytes(size), partition=partition)
    if producer.flush(30):
        raise SystemExit(f"no acknowledgement for the first records of {topic}")


def send_chunk(producer: Producer, topic: str, chunk: list[dict[str, bytes]]) -> None:
    if not hasattr(producer, "produce_batch"):  # confluent-kafka before 2.12, at about 1.2 times the cost
        for message in chunk:
            producer.produce(topic, message["value"])
    elif (taken := producer.produce_batch(topic, chunk)) != len(chunk):
        raise SystemExit(f"librdkafka took {taken} of {len(chunk)} messages")


def consuming(job: Job) -> Step:
    """Read all partitions of the topic from the beginning until `records` were read."""
    consumer = Consumer(job["config"])
    topic, expected = job["topic"], job["records"]
    partitions = [TopicPartition(topic, p, 0) for p in consumer.list_topics(topic).topics[topic].partitions]

    def run() -> dict[str, Any]:
        consumer.assign(partitions)
        seen, idle_since = 0, time.monotonic()
        while seen < expected:
            messages = consumer.consume(min(10_000, expected - seen), 1.0)  # slow if there are fewer
            if messages:
                taken(messages[0])
                seen, idle_since = seen + len(messages), time.monotonic()
            elif time.monotonic() - idle_since > 30:
                raise SystemExit(f"saw {seen} of {expected} records of {topic}, then nothing for 30 s")
        return {"records": seen, "ended": time.monotonic()}

    return run


def pacing(job: Job) -> Step:
    """Send `rate` records per second for `seconds`, open loop. Each has the time at which it was due."""
    producer = Producer(job["config"])
    topic, interval = job["topic"], 1e9 / job["rate"]
    count = int(job["seconds"] * job["rate"])
    tail = values(job["size"])[0][STAMP.size :]
    _send_first(producer, topic, job["size"])
    _sleep_precisely()

    def run() -> dict[str, Any]:
        begin, lag = time.monotonic_ns() + 1_000_000, []
        for number in range(count):
            due = begin + int(number * interval)
            while (early := due - time.monotonic_ns()) > 0:
                time.sleep(early / 1e9)
            lag.append(time.monotonic_ns() - due)
            producer.produce(topic, STAMP.pack(due) + tail)
            producer.poll(0)
        return {
            "records": count,
            "unsent": producer.flush(30),
            "lag_p99": sorted(lag)[len(lag) * 99 // 100] / 1e6,
        }

    return run


def _sleep_precisely() -> None:
    """Disable the 50 µs by which Linux may delay a wake-up: PR_SET_TIMERSLACK."""
    ctypes.CDLL(None).prctl(29, 1)


def listening(job: Job) -> Step:
    """Read the stamped records and return their ages in milliseconds, without the warm-up."""
    consumer = Consumer(job["config"])
    topic, expected, skip = job["topic"], job["records"], job["skip"]
    names = consumer.list_topics(topic).topics[topic].partitions
    consumer.assign([TopicPartition(topic, p, 0) for p in names])
    for _ in names:  # the first records of `pacing`: now the fetches are running
        taken(consumer.poll(30.0))

    def run() -> dict[str, Any]:
        ages = []
        for _ in range(expected):
            message = consumer.poll(30.0)
            now = time.monotonic_ns()
            ages.append((now - STAMP.unpack_from(taken(message))[0]) / 1e6)
        return {"records": len(ages), "latency": ages[skip:]}

    return run


def taken(message: Message | None) -> bytes:
    """Return the value of a message. Fail if there is none or it is an error."""
    if message is None:
        raise SystemExit("no record came in time")
    if message.error() is not None:
        raise SystemExit(f"the consumer got {message.error()}")
    return message.value() or b""


def chunked(payloads: list[bytes]) -> list[list[dict[str, bytes]]]:
    messages = [{"value": payload} for payload in payloads]
    return [messages[start : start + CHUNK] for start in range(0, len(messages) - CHUNK + 1, CHUNK)]


def thread_seconds() -> dict[str, float]:
    """Return the CPU seconds of each thread. A thread near one second per second is the bottleneck."""
    seconds = {}
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # the thread may have ended
            fields = (task / "stat").read_text().rpartition(")")[2].split()
            seconds[task.name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds


ROLES: dict[str, Callable[[Job], Step]] = {
    "produce": producing,
    "consume": consuming,
    "pace": pacing,
    "listen": listening,
    "send": wire.sending,
    "drain": wire.draining,
}

if __name__ == "__main__":
    main()
