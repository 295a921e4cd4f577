"""Client configurations: names with dots and underscores, and hints for names of other clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.config.admin import AdminConfig
from ottla.config.client import ClientConfig
from ottla.config.consumer import ConsumerConfig
from ottla.config.elsewhere import NAMES, REASONS, hint
from ottla.config.producer import ProducerConfig
from ottla.config.table import rows
from ottla.errors import ConfigError

SERVERS = {"bootstrap.servers": "a:1, [::1]:2"}
TABLES = (ProducerConfig, ConsumerConfig, AdminConfig)
OF_KAFKA = [line.split() for line in (Path(__file__).parent / "kafka_client_names.txt").read_text().splitlines()]
"""All client configuration names of Apache Kafka 4.2, and the clients that have them."""


def test_names_may_have_dots_or_underscores_and_be_in_both_places() -> None:
    config = ClientConfig.given(SERVERS, {"client_id": "me", "request.timeout.ms": "5"})
    assert config.bootstrap_servers == (("a", 1), ("::1", 2))
    assert (config.client_id, config.request_timeout_ms) == ("me", 5)
    assert AdminConfig.given(None, {"bootstrap_servers": ["a:1", "b:2"]}).bootstrap_servers == (("a", 1), ("b", 2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"client.id": "a", "client_id": "b"}, "given twice"),
        ({"reqest_timeout_ms": 1}, r"Did you mean request\.timeout\.ms\?"),
        ({"sasl_plain_username": "a"}, r"Use sasl\.username, as in Kafka"),
        ({"ssl.ca.location": "x"}, r"Use ssl\.cafile, as in Kafka"),
        ({"ssl.truststore.type": "BCFKS"}, "one of PEM, PKCS12, JKS"),
        ({"sasl_kerberos_service_name": "x"}, "Kerberos is not supported"),
        ({"sasl.oauthbearer.token.endpoint.url": "x"}, r"Leave it out\. The function sasl\.oauth\.token\.provider"),
        ({"config.providers": "x"}, "work in every value"),
        ({"ssl_check_hostname": False}, r'write ssl\.endpoint\.identification\.algorithm=""'),
        ({"queue.buffering.max.kbytes": 1024}, r"Use buffer\.memory, in bytes"),
        ({"compression.level": 3}, r"or compression\.zstd\.level"),
        ({"socket.keepalive.enable": True}, "Leave it out"),
        ({"auto.include.jmx.reporter": "x"}, r"`metrics\(\)`"),
        ({"request_timeout_ms": -1}, "at least 0"),
        ({"security_protocol": "TLS"}, "one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
    ],
)
def test_mistakes_say_what_is_right(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ClientConfig.given(SERVERS, options)


def test_a_name_of_another_client_is_not_said_of_a_table_that_does_not_have_it() -> None:
    with pytest.raises(ConfigError) as caught:
        ConsumerConfig.given(SERVERS, {"max_batch_size": 1})
    assert "batch.size" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"Use batch\.size"):
        ProducerConfig.given(SERVERS, {"max_batch_size": 1})


def test_every_right_name_exists_and_no_wrong_one_does() -> None:
    known = {name for table in TABLES for name in rows(table)}
    assert set(NAMES.values()) <= known
    assert not (NAMES.keys() | REASONS.keys()) & known
    beginnings = tuple(name for name in REASONS if name.endswith("."))
    assert not [name for name in known if name.startswith(beginnings)]


@pytest.mark.parametrize("table", TABLES)
def test_every_name_of_kafkas_client_is_taken_or_refused_for_a_reason(table: type[ClientConfig]) -> None:
    kind = table.what.split()[0]
    names = [name for name, *kinds in OF_KAFKA if kind in kinds]
    assert len(names) > 70
    assert [name for name in names if name not in rows(table) and not hint(name, frozenset(rows(table)))] == []


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"security.protocol": "sasl_ssl", "sasl.jaas.config": "x"}, "SASL_SSL"),
        ({"security.protocol": "Plaintext"}, "PLAINTEXT"),
        ({"metadata.recovery.strategy": "NONE"}, "none"),
        ({"metadata.recovery.strategy": "ReBootstrap"}, "rebootstrap"),
    ],
)
def test_the_case_does_not_matter_where_it_does_not_in_kafka(given: dict[str, object], meant: str) -> None:
    config = ClientConfig.given(SERVERS, given)
    assert meant in (config.security_protocol, config.metadata_recovery_strategy)


def test_a_password_is_in_no_error() -> None:
    with pytest.raises(ConfigError) as caught:
        ClientConfig.given(SERVERS, {"sasl_password": 12345})
    assert "12345" not in str(caught.value)
