"""The exporter over sockets: its metrics, the number of its requests, and events that arrive at least once."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from ottla import Admin, Broker, Consumer, NewTopic, Producer, TopicPartition
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.errors import ConfigError
from ottla.exporter.delivery import Delivery, Outlet, Refused
from ottla.exporter.exporter import Exporter
from ottla.exporter.settings import Settings, read_settings
from ottla.monitoring.alarms import BEGAN, Event, Subject
from ottla.net.client.connection import Connection
from ottla.protocol.apis import ApiKey
from ottla.runtime.clock import SystemClock


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with Broker() as one:
        yield one.bootstrap_servers


@asynccontextmanager
async def exporting(broker: str, **settings: Any) -> AsyncIterator[Exporter]:
    config = {"bootstrap.servers": broker}
    chosen = Settings.of({"listen": "127.0.0.1:0", **settings})
    async with AsyncAdmin(config) as admin, Delivery(chosen.places, config, "c-1") as delivery:
        await admin.cluster.refresh(())
        exporter = Exporter(admin.cluster, chosen, delivery, SystemClock().now)
        await exporter.server.start()
        try:
            yield exporter
        finally:
            await exporter.server.stop()


async def scrape(exporter: Exporter, path: str = "/metrics") -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", exporter.server.port)
    writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body


async def samples(exporter: Exporter, topic: str) -> dict[str, float]:
    _, body = await scrape(exporter)
    lines = [line for line in body.splitlines() if f'topic="{topic}"' in line]
    return {line.split("{")[0].removeprefix("ottla_group_"): float(line.rsplit(" ", 1)[1]) for line in lines}


def fill(broker: str, topic: str, count: int, *, age_ms: int = 100_000, **configs: str) -> None:
    with Admin({"bootstrap.servers": broker}) as admin:
        admin.create_topics([NewTopic(topic, num_partitions=1, configs=configs)])
    write(broker, topic, count, age_ms)


def write(broker: str, topic: str, count: int, age_ms: int = 0) -> None:
    first = SystemClock().now() - age_ms
    with Producer({"bootstrap.servers": broker}) as producer:
        for number in range(count):
            producer.send(topic, b"x", partition=0, timestamp=first + number * age_ms // count)


def commit(broker: str, group: str, topic: str, offset: int) -> None:
    with Admin({"bootstrap.servers": broker}) as admin:
        admin.alter_group_offsets(group, {TopicPartition(topic, 0): offset})


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.02)


async def test_the_metrics_of_a_group(broker: str) -> None:
    fill(broker, "metrics", 1_000, **{"retention.ms": "1000000"})
    commit(broker, "reader", "metrics", 500)
    async with exporting(broker) as exporter:
        assert await scrape(exporter, "/healthz") == (503, "the cluster could not be polled; see the log\n")
        await exporter.poll()
        assert await scrape(exporter, "/healthz") == (200, "ok\n")
        found = await samples(exporter, "metrics")
        assert found["lag_records"] == 500
        assert found["lag_seconds"] == pytest.approx(50, abs=3)
        assert found["retention_used_ratio"] == pytest.approx(0.05, abs=0.003)
        assert found["records_lost_total"] == 0
        with Admin({"bootstrap.servers": broker}) as admin:
            admin.delete_records({TopicPartition("metrics", 0): 600})
        await exporter.poll()
        found = await samples(exporter, "metrics")
        assert (found["records_lost_total"], found["lag_records"], found["retention_used_ratio"]) == (100, 400, 1)
        assert found["without_consumption_seconds"] > 0
        commit(broker, "reader", "metrics", 1_000)
        await exporter.poll()
        found = await samples(exporter, "metrics")
        assert (found["lag_records"], found["lag_seconds"], found["without_consumption_seconds"]) == (0, 0, 0)


async def test_rebalances_by_cause_and_their_event(broker: str, tmp_path: Path) -> None:
    fill(broker, "rebalancing", 1)
    log = tmp_path / "events.jsonl"
    async with exporting(broker, events_log=str(log)) as exporter:
        await exporter.poll()
        config = {"bootstrap.servers": broker, "group.id": "rebalancer", "auto.offset.reset": "earliest"}

        def consume() -> None:
            with Consumer(config) as consumer:
                consumer.subscribe(["rebalancing"])
                while not consumer.assignment():
                    consumer.poll(timeout_ms=100)

        # The topic of offsets is new, so it is followed from here on.
        await asyncio.to_thread(consume)
        await exporter.poll()
        await asyncio.to_thread(consume)
        await exporter.poll()
        _, body = await scrape(exporter)
        assert 'ottla_group_rebalances_total{group="rebalancer",cause="member joined"}' in body
        assert 'ottla_group_rebalances_total{group="rebalancer",cause="member left"}' in body
        await until(lambda: bool(log.read_text()))
    events = [json.loads(line) for line in log.read_text().splitlines()]
    mine = [one for one in events if one["subject"] == "rebalancer"]
    assert [(one["event"], one["status"], one["cluster"]) for one in mine] == [("rebalance", "happened", "c-1")]


async def test_many_groups_cost_no_more_requests_than_one(broker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Admin({"bootstrap.servers": broker}) as admin:
        admin.create_topics([NewTopic("wide", num_partitions=200)])
        with Producer({"bootstrap.servers": broker}) as producer:
            for number in range(2_000):
                producer.send(
                    "wide", b"x", partition=number % 200, timestamp=SystemClock().now() - 1000 * (2_000 - number)
                )
        for group in range(60):
            keys = [TopicPartition("wide", (group * 10 + number) % 200) for number in range(10)]
            admin.alter_group_offsets(f"many-{group}", dict.fromkeys(keys, group % 10))
    asked: Counter[str] = Counter()
    request = Connection.request

    async def counted(self: Connection, api_key: int, *args: Any, **options: Any) -> Any:
        asked[ApiKey(api_key).name] += 1
        return await request(self, api_key, *args, **options)

    async with exporting(broker) as exporter:
        monkeypatch.setattr(Connection, "request", counted)
        await exporter.poll()
        most = {"LIST_OFFSETS": 7, "OFFSET_FETCH": 1, "LIST_GROUPS": 1, "FIND_COORDINATOR": 1, "DESCRIBE_CONFIGS": 2}
        for name, limit in most.items():
            assert asked[name] <= limit, asked
        assert asked["FETCH"] <= 20 * 16 + 8
        for _ in range(6):
            await exporter.poll()
        _, body = await scrape(exporter)
        lags = [line for line in body.splitlines() if line.startswith("ottla_group_lag_seconds") and "many-" in line]
        assert len(lags) == 600


async def test_a_lag_above_its_limit_goes_to_a_topic(broker: str) -> None:
    fill(broker, "slow", 100)
    commit(broker, "slow-reader", "slow", 0)
    async with exporting(broker, lag_seconds=60, events_topic="events") as exporter:
        await exporter.poll()
        await exporter.poll()
        commit(broker, "slow-reader", "slow", 100)
        await exporter.poll()
        await until(lambda: exporter._delivery.outlets[0].waiting == 0)
    config = {"bootstrap.servers": broker, "auto.offset.reset": "earliest"}
    found: list[dict[str, Any]] = []
    with Consumer(config) as consumer:
        consumer.assign([TopicPartition("events", 0)])
        consumer.seek_to_beginning()
        while len(found) < 2:
            told = [json.loads(record.value) for record in consumer.poll(timeout_ms=5_000)]
            found += [one for one in told if one["subject"] == "slow-reader"]
    assert [(one["event"], one["subject"], one["status"]) for one in found] == [
        ("lag", "slow-reader", "began"),
        ("lag", "slow-reader", "over"),
    ]
    assert found[0]["lag_records"] == 100


async def test_dead_letters_go_to_a_webhook_that_fails_at_first(broker: str) -> None:
    fill(broker, "orders.dead", 5)
    taken: list[dict[str, Any]] = []
    answers = [503, 429, 200]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            taken.append(json.loads(body))
            self.send_response(answers[min(len(taken), 3) - 1])
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/hook"
        async with exporting(broker, dead_letters=["*.dead"], webhook=url) as exporter:
            await exporter.poll()
            write(broker, "orders.dead", 3)
            await exporter.poll()
            await until(lambda: exporter._delivery.outlets[0].sent == 1)
    finally:
        server.shutdown()
        server.server_close()
    assert {(one["event"], one["topic"], one["count"]) for one in taken} == {("dead_letters", "orders.dead", 3)}
    assert len({one["id"] for one in taken}) == 1
    assert len(taken) == 3


async def test_a_broker_that_is_away_is_told_and_old_figures_are_not_shown() -> None:
    one = Broker()
    one.start()
    try:
        fill(one.bootstrap_servers, "gone", 10)
        commit(one.bootstrap_servers, "g", "gone", 1)
        config = {"bootstrap.servers": one.bootstrap_servers, "default.api.timeout.ms": 500, "request.timeout.ms": 400}
        chosen = Settings.of({"listen": "127.0.0.1:0"})
        async with AsyncAdmin(config) as admin, Delivery(chosen.places, config, None) as delivery:
            exporter = Exporter(admin.cluster, chosen, delivery, SystemClock().now)
            await exporter.server.start()
            await exporter.poll()
            assert (await samples(exporter, "gone"))["lag_records"] == 9
            await asyncio.to_thread(one.stop)
            for _ in range(3):
                await exporter.poll()
            assert await samples(exporter, "gone") == {}
            assert (await scrape(exporter, "/healthz"))[0] == 503
            await exporter.server.stop()
    finally:
        one.stop()


async def test_events_wait_in_order_and_refused_ones_are_dropped() -> None:
    sent: list[int] = []
    problems: list[Exception] = [OSError("down"), OSError("down"), Refused("no")]

    async def send(event: Event) -> None:
        if problems:
            raise problems.pop(0)
        sent.append(event.at)

    outlet = Outlet("test", send, first_pause=0.001)
    for number in range(5):
        outlet.put(Event(Subject("lag", "g"), BEGAN, number, {}))
    await outlet.close()
    assert (sent, outlet.dropped, outlet.failed) == ([1, 2, 3, 4], 1, 2)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"lag_second": 1}, "there is no setting lag_second: did you mean lag_seconds?"),
        ({"interval": 0.1}, "interval must be at least 1 second"),
        ({"lag_seconds": True}, "lag_seconds must be a number of seconds above 0, not True"),
        ({"lag_records": 0}, "lag_records must be a whole number from 1 on"),
        ({"webhook": "alerts.example.com/secret"}, "webhook is not an address such as"),
        ({"dead_letters": "x"}, "dead_letters must be a list"),
        ({"listen": "9404"}, "listen: '9404' is not an address"),
        ({"events_topic": "my events"}, "events_topic: 'my events' may only contain ASCII letters"),
        ({"webhook": "${env:NO_SUCH_VARIABLE}"}, "NO_SUCH_VARIABLE is not set"),
    ],
)
def test_wrong_settings_are_told(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)) as told:
        Settings.of(values)
    assert message in str(told.value)
    assert "secret" not in str(told.value)


def test_a_file_of_settings(tmp_path: Path) -> None:
    path = tmp_path / "exporter.toml"
    path.write_text('lag_seconds = 300\ndead_letters = ["*.dead"]\n')
    assert Settings.of(read_settings(path)).limits.lag_seconds == 300
    path.write_text("lag_seconds = \n")
    with pytest.raises(ConfigError, match="is not a TOML file"):
        read_settings(path)
