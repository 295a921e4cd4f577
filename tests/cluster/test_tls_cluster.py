"""Brokers that connect to each other with TLS, and clients of several listeners."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.compat.waiting import until

import ottla
from authorities import Authority
from ottla.cluster.zookeeper import LocalZooKeeper

LISTENERS = ("INSIDE", "OUTSIDE", "PLAIN")


def configs(broker_id: int, directory: Path, zookeeper: str, authority: Authority) -> dict[str, str]:
    return {
        "node.id": str(broker_id),
        "log.dirs": str(directory / str(broker_id)),
        "zookeeper.connect": zookeeper,
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in reversed(LISTENERS)),
        "advertised.listeners": "OUTSIDE://localhost:0",
        "listener.security.protocol.map": "INSIDE:SSL,OUTSIDE:SSL,PLAIN:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
        "ssl.truststore.location": str(authority.certificate),
        "ssl.keystore.location": str(authority.sign(f"broker-{broker_id}")),
        "listener.name.inside.ssl.client.auth": "required",
        "default.replication.factor": "3",
        "min.insync.replicas": "2",
        "offsets.topic.num.partitions": "1",
    }


def address(broker: ottla.Broker, listener: str) -> str:
    server = broker._running().servers[LISTENERS[::-1].index(listener)]
    assert server.name == listener
    return f"127.0.0.1:{server.port}"


@pytest.fixture
def brokers(
    tmp_path: Path, zookeeper_server: LocalZooKeeper, chroot: str
) -> Iterator[tuple[list[ottla.Broker], Authority]]:
    authority = Authority(tmp_path / "authority")
    zookeeper = zookeeper_server.address + chroot
    with ExitStack() as stack:
        started = [
            stack.enter_context(ottla.Broker(config=configs(number, tmp_path, zookeeper, authority)))
            for number in (1, 2, 3)
        ]
        yield started, authority


def test_brokers_replicate_over_tls_and_each_listener_tells_its_own_addresses(
    brokers: tuple[list[ottla.Broker], Authority],
) -> None:
    started, authority = brokers
    trust = {"security_protocol": "SSL", "ssl_cafile": str(authority.certificate)}
    told = {}
    for name, host in (("PLAIN", "127.0.0.1"), ("OUTSIDE", "localhost"), ("INSIDE", "127.0.0.1")):
        security = {} if name == "PLAIN" else trust
        if name == "INSIDE":
            security = {**security, "ssl_certfile": str(authority.sign("client"))}
        with ottla.Admin(bootstrap_servers=address(started[0], name), **security) as admin:
            until(lambda admin=admin: len(admin.describe_cluster().nodes) == 3, "all brokers are there")
            told[name] = {f"{node.host}:{node.port}" for node in admin.describe_cluster().nodes}
        assert told[name] == {address(broker, name).replace("127.0.0.1", host) for broker in started}
    outside = {"bootstrap_servers": address(started[0], "OUTSIDE"), **trust}
    with ottla.Admin(**outside) as admin:
        admin.create_topics(ottla.NewTopic("orders", 3))
    with ottla.Producer(**outside, acks="all", linger_ms=0) as producer:
        for number in range(20):
            producer.send("orders", b"%d" % number, partition=number % 3).get(30)
        started[2].stop()
        for number in range(20, 40):
            producer.send("orders", b"%d" % number, partition=number % 3).get(30)
    with ottla.Consumer(**outside, group_id="readers", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["orders"])
        found: set[bytes] = set()
        until(lambda: found.update(record.value for record in consumer.poll(0.1)) or len(found) == 40, "all records")
