"""Faults between a consumer and its brokers: restarts, cut connections, slow responses. Nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.clients.consumer.blocking import Consumer
from ottla.errors import RequestTimedOut
from ottla.types import TopicPartition

from .consumer_scenes import new_group, numbers, partitions, poll_until, read, values, write

FAST: dict[str, dict[str, Any]] = {
    "classic": {"session_timeout_ms": 6000, "heartbeat_interval_ms": 100},
    "consumer": {},
}


class Proxy:
    """Between client and broker; cuts connections on demand."""

    def __init__(self, servers: str) -> None:
        host, _, port = servers.rpartition(":")
        self._target = (host, int(port))
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self.stalled = False
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        ready.wait(30)

    def _run(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = self._server.sockets[0].getsockname()[1]
        ready.set()
        self._loop.run_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            other_reader, other_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, other_writer}
        await asyncio.gather(self._pipe(reader, other_writer, False), self._pipe(other_reader, writer, True))

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, back: bool) -> None:
        try:
            while data := await reader.read(65536):
                if not (back and self.stalled):
                    writer.write(data)
                    await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()
            self._writers.discard(writer)

    def cut(self) -> None:
        """Break every connection."""

        def abort() -> None:
            for writer in list(self._writers):
                writer.transport.abort()

        self._loop.call_soon_threadsafe(abort)

    async def _end(self) -> None:
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.wait(rest, timeout=2) if rest else None

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()


@pytest.fixture
def through_proxy(own_broker: Any) -> Iterator[tuple[Proxy, str]]:
    """A proxy that the broker advertises as its address, and the broker's real address."""
    from benchmarks.peer import free_port

    if os.environ.get("OTTLA_COMPAT_BROKER", "ottla") != "ottla":
        pytest.skip("the addresses of another broker are not ours to set")
    port = free_port()
    proxy = Proxy(f"127.0.0.1:{port}")
    own_broker(
        listeners=f"PLAINTEXT://127.0.0.1:{port}",
        advertised_listeners=f"PLAINTEXT://127.0.0.1:{proxy.port}",
        group_min_session_timeout_ms="500",
        group_consumer_min_heartbeat_interval_ms="50",
        group_consumer_heartbeat_interval_ms="100",
    )
    yield proxy, f"127.0.0.1:{proxy.port}"
    proxy.close()


def create(servers: str, count: int) -> str:
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"topic-{new_group()}"
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, count, 1)])[name].result(20)
    return name


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_cut_connections_lose_and_repeat_nothing(through_proxy: tuple[Proxy, str], protocol: str) -> None:
    proxy, servers = through_proxy
    topic = create(servers, 2)
    settings = {"auto_offset_reset": "earliest", "group_protocol": protocol, **FAST[protocol]}
    with Consumer(bootstrap_servers=servers, group_id=new_group(), max_poll_records=50, **settings) as consumer:
        assert consumer.partitions_for(topic)  # a client that never reached a broker would get an error
        consumer.subscribe([topic])
        proxy.cut()
        poll_until([consumer], lambda: len(consumer.assignment()) == 2, "joined all the same")
        seen: list[tuple[int, int]] = []
        for round_ in range(4):
            for number in range(2):
                write(servers, topic, numbers(round_ * 50, round_ * 50 + 50), number)
            proxy.cut()
            seen += [(record.partition, record.offset) for record in read(consumer, 100)]
            proxy.cut()
            consumer.commit()
        assert len(seen) == len(set(seen)) == 400
        assert {one.offset for one in consumer.committed(partitions(topic, 2)).values() if one} == {200}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_broker_that_is_restarted(own_broker: Any, protocol: str) -> None:
    broker = own_broker(group_consumer_min_heartbeat_interval_ms="50", group_consumer_heartbeat_interval_ms="100")
    servers = broker.bootstrap_servers
    topic = create(servers, 2)
    settings = {"auto_offset_reset": "earliest", "group_protocol": protocol, **FAST[protocol]}
    with Consumer(bootstrap_servers=servers, group_id=new_group(), **settings) as consumer:
        consumer.subscribe([topic])
        write(servers, topic, numbers(0, 10))
        assert values(read(consumer, 10)) == numbers(0, 10)
        broker.stop()
        assert consumer.poll(0.3) == []
        broker.start()
        write(servers, topic, numbers(10, 20))
        assert values(read(consumer, 10)) == numbers(10, 20)
        consumer.commit()
        found = consumer.committed([TopicPartition(topic, 0)])[TopicPartition(topic, 0)]
        assert found is not None
        assert found.offset == 20


def test_calls_end_in_time_when_the_broker_falls_silent(through_proxy: tuple[Proxy, str]) -> None:
    proxy, servers = through_proxy
    topic = create(servers, 1)
    (key,) = partitions(topic, 1)
    consumer = Consumer(
        bootstrap_servers=servers, group_id=new_group(), auto_offset_reset="earliest", **FAST["classic"]
    )
    consumer.subscribe([topic])
    poll_until([consumer], consumer.assignment, "a partition")
    proxy.stalled = True
    calls: list[Callable[[], object]] = [
        lambda: consumer.poll(0.2),
        lambda: consumer.commit({key: 1}, timeout=0.2),
        lambda: consumer.committed([key], timeout=0.2),
        lambda: consumer.end_offsets([key], timeout=0.2),
        lambda: consumer.close(0.5),
    ]
    for call in calls:
        start = time.monotonic()
        with contextlib.suppress(RequestTimedOut):
            call()
        assert time.monotonic() - start < 10


def test_a_broker_that_stays_away_is_logged_once_each_time(own_broker: Any, caplog: pytest.LogCaptureFixture) -> None:
    broker = own_broker()
    servers = broker.bootstrap_servers
    topic = create(servers, 1)
    settings: dict[str, Any] = {"reconnect_backoff_ms": 5, "reconnect_backoff_max_ms": 5, "enable_auto_commit": False}

    def told() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == "ottla.clients.cluster.reports"]

    away = f"nothing listens at {servers}: check the address and that the broker is running; the client keeps trying"
    caplog.set_level("WARNING")
    with Consumer(
        bootstrap_servers=servers, group_id=new_group(), auto_offset_reset="earliest", **settings
    ) as consumer:
        consumer.subscribe([topic])
        for outage in (1, 2):
            write(servers, topic, numbers(0, 1))
            assert values(read(consumer, 1)) == numbers(0, 1)
            broker.stop()
            poll_until([consumer], lambda: len(told()) >= outage, "a warning")  # noqa: B023
            consumer.poll(0.2)
            assert told() == [away] * outage
            broker.start()
