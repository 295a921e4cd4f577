"""The warnings about configurations that leave a door open."""

from __future__ import annotations

import pytest

from ottla.config import BrokerConfig
from ottla.config.open_doors import open_doors
from ottla.config.security import AUTHORIZERS

KEY = {"ssl.keystore.location": "x", "ssl.truststore.location": "x", "sasl.enabled.mechanisms": "SCRAM-SHA-256"}
ACLS = {"authorizer.class.name": AUTHORIZERS[0]}


def doors(listeners: str, **more: str) -> str:
    return "\n".join(open_doors(BrokerConfig.parse({"listeners": listeners, **KEY, **more})))


@pytest.mark.parametrize(
    ("listeners", "more"),
    [
        ("PLAINTEXT://:9092", {}),
        ("SSL://:9092", {}),
        ("SASL_SSL://:9092,PLAINTEXT://127.0.0.1:9093", {}),
        ("SASL_SSL://:9092,PLAINTEXT://localhost:9093", {}),
        ("SASL_PLAINTEXT://[::1]:9092", {}),
        ("SASL_SSL://:9092", ACLS),
        ("SSL://:9092", {**ACLS, "ssl.client.auth": "required"}),
    ],
)
def test_closed_doors(listeners: str, more: dict[str, str]) -> None:
    assert doors(listeners, **more) == ""


@pytest.mark.parametrize(
    ("listeners", "more", "says"),
    [
        ("SASL_PLAINTEXT://0.0.0.0:9092", {}, "SASL_PLAINTEXT://0.0.0.0:9092 has SASL without TLS"),
        ("SASL_PLAINTEXT://kafka.example:9092", {}, "has SASL without TLS"),
        ("SSL://:9092,PLAINTEXT://10.0.0.1:9093", {}, "PLAINTEXT://10.0.0.1:9093 has neither TLS nor authentication"),
        ("PLAINTEXT://127.0.0.1:9092", ACLS, "clients of the listener PLAINTEXT://127.0.0.1:9092 do not authenticate"),
        ("SSL://:9092", {**ACLS, "ssl.client.auth": "requested"}, "do not authenticate"),
        ("SASL_SSL://:9092", {**ACLS, "allow.everyone.if.no.acl.found": "true"}, "that no ACL names"),
        ("SASL_SSL://:9092", {"super.users": "User:admin"}, "no effect without authorizer.class.name"),
        (
            "SSL://:9092",
            {"zookeeper.connect": "zk:2181", "ssl.endpoint.identification.algorithm": "",
             "security.inter.broker.protocol": "SSL"},
            "do not check the host names",
        ),
    ],
)  # fmt: skip
def test_open_doors(listeners: str, more: dict[str, str], says: str) -> None:
    found = doors(listeners, **more)
    assert says in found
    assert "\n" not in found
