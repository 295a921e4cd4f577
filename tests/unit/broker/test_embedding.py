"""An embedded broker: blocking and asyncio, temporary and persistent, and clear errors when it cannot start."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys
import textwrap
import threading
import urllib.request
from pathlib import Path

import pytest

import ottla
from ottla.protocol.apis import ApiKey
from ottla.records import decode_batch
from unit.broker.wire import Wire, batch


def values(broker: ottla.Broker, topic: str, offset: int = 0) -> list[bytes | None]:
    with Wire(broker.bootstrap_servers) as wire:
        return [record.value for record in decode_batch(wire.fetch(topic, offset).records)]


def test_a_temporary_broker_leaves_nothing_behind() -> None:
    before = set(threading.enumerate())
    with ottla.Broker() as broker:
        data_dir = broker.data_dir
        assert data_dir.is_dir()
    assert not data_dir.exists()
    assert set(threading.enumerate()) <= before


def test_a_program_that_does_not_stop_its_broker_leaves_nothing_behind() -> None:
    code = """
        import os, ottla
        directory = ottla.Broker().start().data_dir
        if os.fork():
            os.wait()
            print(directory.exists(), directory)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, timeout=60, check=True, capture_output=True, text=True)
    was_there, directory = done.stdout.split()
    assert was_there == "True"  # The fork has left it.
    assert not Path(directory).exists()


def test_what_was_written_is_there_after_a_restart(tmp_path: Path) -> None:
    with ottla.Broker(tmp_path / "data") as broker, Wire(broker.bootstrap_servers) as wire:
        topic_id = wire.create_topic("orders", 2, retention_ms="-1").topic_id
        wire.produce("orders", batch(b"kept"))
        cluster_id = broker.cluster_id
    with ottla.Broker(tmp_path / "data") as broker:
        assert broker.cluster_id == cluster_id
        assert values(broker, "orders") == [b"kept"]
        with Wire(broker.bootstrap_servers) as wire:
            topic = wire.call(3, 12, {"topics": [{"name": "orders", "topic_id": None}]}).topics[0]
            assert (topic.topic_id, len(topic.partitions)) == (topic_id, 2)
            asked = {"resource_type": 2, "resource_name": "orders", "configuration_keys": ["retention.ms"]}
            assert wire.call(32, 4, {"resources": [asked]}).results[0].configs[0].value == "-1"


def test_a_broker_can_be_started_again(tmp_path: Path) -> None:
    broker = ottla.Broker(tmp_path)
    for _ in range(2):
        with broker, Wire(broker.bootstrap_servers) as wire:
            wire.call(3, 9, {"topics": None})
    broker.stop()


def test_two_brokers_in_one_process_do_not_mix() -> None:
    with ottla.Broker() as one, ottla.Broker() as other:
        with Wire(one.bootstrap_servers) as wire:
            wire.create_topic("here")
        with Wire(other.bootstrap_servers) as wire:
            assert wire.call(3, 9, {"topics": None}).topics == []


async def test_it_works_inside_asyncio_without_holding_the_loop() -> None:
    async with ottla.Broker() as broker:
        host, port = broker.bootstrap_servers.split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.close()


def test_a_second_broker_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with ottla.Broker(tmp_path), pytest.raises(ottla.OttlaError, match="uses the data directory"):
        ottla.Broker(tmp_path).start()
    with ottla.Broker(tmp_path):
        pass


def test_an_address_in_use_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ottla.OttlaError, match=f"cannot listen on {address}.*choose another"):
            ottla.Broker(tmp_path, listen=address).start()
    # The directory was unlocked again.
    with ottla.Broker(tmp_path):
        pass


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({"num_partition": 3}, "num.partitions"),
        ({"num.partitions": 0}, "num.partitions"),
        ({"listen": "nonsense"}, "nonsense"),
        ({"log.retention.ms": "soon"}, "log.retention.ms"),
        ({"clock": "manuel"}, "clock must be .*, not 'manuel'"),
        ({"registry": "http://127.0.0.1:8081"}, "registry must be True or False"),
        ({"users": ["alice"]}, "users must be a dict"),
    ],
)
def test_a_bad_config_is_told_when_the_broker_is_made(configs: dict[str, object], message: str) -> None:
    with pytest.raises(ottla.OttlaError, match=message):
        ottla.Broker(**configs)  # type: ignore[arg-type]


def test_using_a_broker_that_is_not_running_is_told() -> None:
    with pytest.raises(ottla.OttlaError, match="not running"):
        _ = ottla.Broker().bootstrap_servers


def test_metrics_and_health_are_served_when_asked_for() -> None:
    configs = {"ottla.metrics.listener": "127.0.0.1:0"}
    with ottla.Broker(config=configs) as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create_topic("orders")
        wire.produce("orders", batch(b"x"))
        assert broker.metrics_address is not None
        base = "http://{}:{}".format(*broker.metrics_address)
        text = urllib.request.urlopen(f"{base}/metrics", timeout=10).read().decode()
        assert urllib.request.urlopen(f"{base}/healthz", timeout=10).status == 200
    assert 'ottla_log_end_offset{topic="orders",partition="0"} 1' in text
    assert 'ottla_topic_bytes_in_total{topic="orders"}' in text
    assert "ottla_connections 1" in text


def test_a_listener_on_all_interfaces_tells_clients_the_address_they_came_by() -> None:
    with ottla.Broker(listen="0.0.0.0:0") as broker, Wire(f"127.0.0.1:{broker.port}") as wire:
        answer = wire.call(3, 9, {"topics": []})
        assert [(b.host, b.port) for b in answer.brokers] == [("127.0.0.1", broker.port)]


def test_many_clients_can_connect_while_the_broker_is_busy() -> None:
    """Otherwise the system drops their first packets, and they try again only after a second."""
    free = threading.Event()
    with ottla.Broker() as broker:
        loop = broker._loop
        assert loop is not None
        loop.call_soon_threadsafe(free.wait, 30)
        try:
            connections = [socket.create_connection(("127.0.0.1", broker.port), 5) for _ in range(200)]
        finally:
            free.set()
        for connection in connections:
            connection.close()


def test_clients_are_told_the_address_of_the_listener_that_they_use() -> None:
    config = {
        "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0,PROXY://127.0.0.1:0",
        "advertised.listeners": "PROXY://kafka.example:9999",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,PROXY:PLAINTEXT",
    }
    with ottla.Broker(config=config) as broker:
        told = []
        for server in broker._running().servers:
            with Wire(f"127.0.0.1:{server.port}") as wire:
                cluster = wire.call(ApiKey.DESCRIBE_CLUSTER, 0, {"include_cluster_authorized_operations": False})
                metadata = wire.call(ApiKey.METADATA, 1, {"topics": []})
                coordinator = wire.call(ApiKey.FIND_COORDINATOR, 1, {"key": "group", "key_type": 0})
                addresses = {(each.host, each.port) for each in (*cluster.brokers, *metadata.brokers, coordinator)}
                told.append((server.port, addresses))
    (inside, first), (outside, second), (_, third) = told
    assert first == {("127.0.0.1", inside)}
    assert second == {("127.0.0.1", outside)}
    assert third == {("kafka.example", 9999)}


def test_an_advertised_address_is_what_clients_are_told() -> None:
    configs = {"listeners": "PLAINTEXT://127.0.0.1:0", "advertised.listeners": "PLAINTEXT://kafka.example:9999"}
    with ottla.Broker(config=configs) as broker, Wire(broker.bootstrap_servers) as wire:
        answer = wire.call(3, 9, {"topics": []})
        assert [(b.host, b.port) for b in answer.brokers] == [("kafka.example", 9999)]


def test_dynamic_configs_hold_at_once_and_after_a_restart(tmp_path: Path) -> None:
    change = {"name": "log.retention.ms", "config_operation": 0, "value": "1000"}
    asked = {"resource_type": 2, "resource_name": "orders", "configuration_keys": ["retention.ms"]}
    with ottla.Broker(tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create_topic("orders")
        altered = wire.call(44, 1, {"resources": [{"resource_type": 4, "resource_name": "1", "configs": [change]}]})
        assert altered.responses[0].error_code == 0
        assert wire.call(32, 4, {"resources": [asked]}).results[0].configs[0].value == "1000"
    with ottla.Broker(tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        assert wire.call(32, 4, {"resources": [asked]}).results[0].configs[0].value == "1000"


def test_files_of_unknown_topics_are_set_aside_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with ottla.Broker(tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create_topic("orders")
        wire.produce("orders", batch(b"x"))
    (tmp_path / "metadata.journal").unlink()
    with caplog.at_level(logging.WARNING), ottla.Broker(tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        assert wire.call(3, 9, {"topics": None}).topics == []
    assert any("orders-0 belongs to no known topic" in record.getMessage() for record in caplog.records)
    assert [path.name for path in tmp_path.glob("orders-0.*-stray")]


def test_the_topic_of_the_groups_cannot_be_deleted() -> None:
    with ottla.Broker() as broker, Wire(broker.bootstrap_servers) as wire:
        wire.call(10, 3, {"key": "readers"})
        entry = {"name": "__consumer_offsets", "topic_id": None}
        answer = wire.call(20, 6, {"topics": [entry], "timeout": 1}).responses[0]
        assert answer.error_code == 42
        assert "groups" in answer.error_message


@pytest.mark.parametrize(("name", "key_type"), [("__consumer_offsets", 0), ("__transaction_state", 1)])
@pytest.mark.parametrize("validate_only", [False, True])
def test_topics_of_the_broker_keep_their_number_of_partitions(name: str, key_type: int, validate_only: bool) -> None:
    """The number of partitions determines where groups and transactions are."""
    with ottla.Broker() as broker, Wire(broker.bootstrap_servers) as wire:
        message = {
            "topics": [{"name": name, "count": 60, "assignments": None}],
            "timeout": 1000,
            "validate_only": validate_only,
        }
        assert wire.call(37, 3, message).results[0].error_code == 3  # before the topic exists
        wire.call(10, 3, {"key": "somebody", "key_type": key_type})
        answer = wire.call(37, 3, message).results[0]
        assert answer.error_code == 42
        assert "number of partitions" in answer.error_message
        (topic,) = wire.call(3, 9, {"topics": [{"name": name}]}).topics
        assert len(topic.partitions) == 50
