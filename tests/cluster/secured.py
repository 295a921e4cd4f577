"""Brokers that log in at each other with SASL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ottla

SCRAM = "SCRAM-SHA-256"
JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="broker" password="between";'


def configs(broker_id: int, directory: Path, zookeeper: str, **more: str) -> dict[str, str]:
    return {
        "node.id": str(broker_id),
        "log.dirs": str(directory / str(broker_id)),
        "zookeeper.connect": zookeeper,
        "listeners": "INSIDE://127.0.0.1:0",
        "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": SCRAM,
        "sasl.mechanism.inter.broker.protocol": SCRAM,
        "listener.name.inside.scram-sha-256.sasl.jaas.config": JAAS,
        "connections.max.reauth.ms": "3000",
        "default.replication.factor": "3",
        "min.insync.replicas": "2",
        "offsets.topic.num.partitions": "1",
        **more,
    }


def client(name: str, password: str, *brokers: ottla.Broker) -> dict[str, Any]:
    return {
        "bootstrap_servers": ",".join(broker.bootstrap_servers for broker in brokers),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": SCRAM,
        "sasl_username": name,
        "sasl_password": password,
    }
