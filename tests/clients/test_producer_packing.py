"""The thread that compresses full batches: it writes the same records, and ends with its producer."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from typing import Any

import pytest

from compat.waiting import until
from ottla.clients.blocking import IllegalUse
from ottla.clients.producer.asynchronous import AsyncProducer
from ottla.clients.producer.blocking import Producer
from ottla.clients.producer.packing import PackingThread
from ottla.records._kernels import KERNELS

from .conftest import MakeTopic
from .producer_scenes import stored_values

OPTIONS: dict[str, Any] = {"compression_type": "lz4", "linger_ms": 1000, "batch_size": 4_000}
compiled = pytest.mark.skipif(KERNELS == "pure", reason="the pure twin works on demand only")


def values(count: int) -> list[bytes]:
    """Values of which some cannot be compressed."""
    return [os.urandom(900) if number % 100 < 20 else b"value %d " % number * 50 for number in range(count)]


def packing_threads() -> int:
    return sum(thread.name == PackingThread.NAME for thread in threading.enumerate())


@pytest.mark.parametrize("partition", [None, 1])
def test_everything_arrives_where_the_futures_say(
    bootstrap_servers: str, make_topic: MakeTopic, partition: int | None
) -> None:
    topic, sent = make_topic(2), values(3_000)
    with Producer(bootstrap_servers=bootstrap_servers, **OPTIONS) as producer:
        futures = [producer.send(topic, value, partition=partition) for value in sent]
        producer.flush(30)
    written = stored_values(bootstrap_servers, topic, 2)
    assert sum(map(len, written.values())) == len(sent)
    for future, value in zip(futures, sent, strict=True):
        assert written[future.result().partition][future.result().offset] == value


def test_batches_too_large_for_the_topic_are_split(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic, sent = make_topic(1, **{"max.message.bytes": "2500"}), values(500)
    with Producer(bootstrap_servers=bootstrap_servers, **{**OPTIONS, "batch_size": 20_000}) as producer:
        for value in sent:
            producer.send(topic, value)
        producer.flush(30)
        assert producer.metrics()["record-error-total"] == 0
    assert stored_values(bootstrap_servers, topic)[0] == sent


@compiled
@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_the_thread_lives_as_long_as_its_producer(bootstrap_servers: str, codec: str) -> None:
    before = packing_threads()
    with Producer(bootstrap_servers=bootstrap_servers, compression_type=codec):
        assert packing_threads() == before + (codec == "lz4")
    assert packing_threads() == before

    async def use() -> None:
        async with AsyncProducer(bootstrap_servers=bootstrap_servers, compression_type=codec):
            assert packing_threads() == before + (codec == "lz4")
        assert packing_threads() == before

    asyncio.run(use())


@compiled
def test_the_thread_of_a_forgotten_producer_ends(bootstrap_servers: str) -> None:
    before = packing_threads()

    async def forget() -> None:
        AsyncProducer(bootstrap_servers=bootstrap_servers, **OPTIONS)._bind()

    def is_gone() -> bool:
        gc.collect()
        return packing_threads() <= before

    asyncio.run(forget())
    until(is_gone, "the thread of the producer has ended", timeout=10)


def test_a_producer_that_gives_up_lets_go_of_what_is_being_packed(
    bootstrap_servers: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    producer = Producer(bootstrap_servers=bootstrap_servers, **OPTIONS)
    futures = [producer.send(topic, value) for value in values(3_000)]
    producer.close(timeout=0)
    assert all(future.done() for future in futures)


def test_a_forked_child_is_not_held_up(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    with Producer(bootstrap_servers=bootstrap_servers, **OPTIONS) as producer:
        for _ in range(5):
            futures = [producer.send(topic, value) for value in values(500)]
            child = os.fork()
            if child == 0:
                try:
                    producer.send(topic, b"w")
                except IllegalUse:
                    del producer, futures
                    gc.collect()
                    os._exit(0)
                os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            producer.flush(30)


def test_a_program_that_ends_without_close_ends(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    program = """
import sys
from ottla import Producer
producer = Producer(bootstrap_servers=sys.argv[1], compression_type="lz4", batch_size=4000)
for number in range(3000):
    producer.send(sys.argv[2], b"value %d " % number * 50)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, bootstrap_servers, make_topic(2)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
