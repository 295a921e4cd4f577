"""Clusters of three brokers on this machine, with the interface of one `Peer`: ottla under ZooKeeper, and Apache Kafka.

with OttlaCluster() as cluster:
    cluster.bootstrap_servers, cluster.cpu_seconds(), cluster.nodes[0].kill()
"""

from __future__ import annotations

import base64
import contextlib
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from benchmarks.apache_kafka import ApacheKafka
from benchmarks.ottla_broker import OttlaBroker
from benchmarks.peer import HOST, Peer, cpu_seconds_of, free_port, resident_bytes_of

BROKERS = 3
STOP_SECONDS = 20.0
#: The same for both. Kafka's defaults otherwise.
CONFIG = {
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "group.initial.rebalance.delay.ms": "0",
    "auto.leader.rebalance.enable": "false",
}
#: For speed only.
ONE_REPLICA = {name: "1" if value in ("2", "3") else value for name, value in CONFIG.items()}


class PeerCluster:
    """Several brokers that act as one peer."""

    name = ""
    replication_factor = BROKERS

    def __init__(self) -> None:
        self.nodes: list[Peer] = []
        self._stack = contextlib.ExitStack()

    def make_nodes(self) -> list[Peer]:
        raise TypeError(f"{type(self).__name__} has no brokers")

    def before(self, stack: contextlib.ExitStack) -> None:
        """Start what the brokers need."""

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.bootstrap_servers for node in self.nodes)

    def node(self, broker_id: int) -> Peer:
        return self.nodes[broker_id - 1]

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self.before(stack)
            self.nodes = self.make_nodes()
            for node in self.nodes:
                node.open()
                stack.callback(node.__exit__)
            self.launch()
            for node in self.nodes:
                node.wait_until_ready()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def launch(self) -> None:
        """Start all brokers at the same time, without waiting."""
        for node in self.nodes:
            node.launch()

    def stop(self) -> None:
        """Ask all brokers to stop. Kafka's last ones have no controller any more, and are killed after a while."""
        for node in self.nodes:
            node.ask_to_stop()
        for node in self.nodes:
            with contextlib.suppress(RuntimeError):
                node.stop(STOP_SECONDS)

    def other_pids(self) -> list[int]:
        """The processes besides the brokers."""
        return []

    def cpu_seconds(self) -> float:
        others = sum(cpu_seconds_of(pid) for pid in self.other_pids())
        return others + sum(node.cpu_seconds() for node in self.nodes if node.is_running)

    def resident_bytes(self) -> int:
        others = sum(resident_bytes_of(pid) for pid in self.other_pids())
        return others + sum(node.resident_bytes() for node in self.nodes if node.is_running)


class OttlaCluster(PeerCluster):
    """Ottla brokers and one ZooKeeper, which counts in CPU time and memory."""

    name = "ottla"

    def __init__(self, brokers: int = BROKERS, config: Mapping[str, str] = CONFIG) -> None:
        super().__init__()
        self._brokers = brokers
        self._config = config
        self.replication_factor = int(config["default.replication.factor"])

    def before(self, stack: contextlib.ExitStack) -> None:
        # Imported here: it needs PySpark's jars.
        from ottla.cluster.zookeeper import LocalZooKeeper

        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="zookeeper-"))
        self._zookeeper = stack.enter_context(LocalZooKeeper(Path(directory)))

    def make_nodes(self) -> list[Peer]:
        address = f"{self._zookeeper.address}/bench"
        return [
            OttlaBroker({**self._config, "node.id": number, "zookeeper.connect": address})
            for number in range(1, self._brokers + 1)
        ]

    def other_pids(self) -> list[int]:
        return [self._zookeeper.pid]


class KafkaNode(ApacheKafka):
    """One node of a Kafka cluster in combined mode."""

    def __init__(self, number: int, voters: str, controller_port: int, cluster_id: str) -> None:
        super().__init__({**CONFIG, "node.id": number, "controller.quorum.voters": voters})
        self.controller_port = controller_port
        self.cluster_id = cluster_id


class KafkaCluster(PeerCluster):
    """Three nodes of Apache Kafka, each of them broker and controller."""

    name = "kafka"

    def make_nodes(self) -> list[Peer]:
        ports = [free_port() for _ in range(BROKERS)]
        voters = ",".join(f"{number}@{HOST}:{port}" for number, port in enumerate(ports, 1))
        cluster_id = "k" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[:21]
        return [KafkaNode(number, voters, port, cluster_id) for number, port in enumerate(ports, 1)]
