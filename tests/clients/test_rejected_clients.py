"""Clients that a broker rejects say so at once, name the login, and log one line; closed connections give a hint."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.sasl_wire import SaslBroker, sasl_broker

import ottla
from authorities import Authority
from compat.waiting import until
from issuers import Issuer
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.producer.asynchronous import AsyncProducer
from ottla.errors import OttlaError, RequestTimedOut, SaslAuthenticationFailed
from ottla.net.client.errors import TlsFailed
from ottla.producing.errors import MetadataTimeout

TOPIC = "rejections"
#: Long before delivery.timeout.ms and default.api.timeout.ms, which are minutes.
AT_ONCE = 15


@pytest.fixture(scope="module")
def sasl() -> Iterator[SaslBroker]:
    with sasl_broker(**{"listener.name.sasl.connections.max.reauth.ms": "1100"}) as broker:
        with ottla.Admin(bootstrap_servers=broker.plain) as admin:
            admin.create_topics(ottla.NewTopic(TOPIC, 1))
        yield broker


def access(sasl: SaslBroker, name: str, password: str = "first") -> dict[str, Any]:
    return {
        "bootstrap_servers": sasl.sasl,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_username": name,
        "sasl_password": password,
    }


def alter(sasl: SaslBroker, users: dict[str, str | None]) -> None:
    with ottla.Admin(bootstrap_servers=sasl.plain) as admin:
        admin.alter_users(users)


def lines_about(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    """The lines of clients that a program sees without any setup."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.WARNING and record.name.startswith(("ottla.clients", "ottla.producer"))
        if text in record.getMessage()
    ]


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_producer_whose_password_changed_fails_at_once_and_recovers(
    sasl: SaslBroker, caplog: pytest.LogCaptureFixture, idempotent: bool
) -> None:
    user = f"writer-{idempotent}"
    alter(sasl, {user: "first"})
    with ottla.Producer(**access(sasl, user), enable_idempotence=idempotent, linger_ms=0) as producer:
        producer.send(TOPIC, b"1").get(AT_ONCE)
        alter(sasl, {user: "second"})
        problem: Exception | None = None
        end = time.monotonic() + AT_ONCE
        while problem is None and time.monotonic() < end:
            problem = producer.send(TOPIC, b"2").exception(AT_ONCE)
        assert isinstance(problem, SaslAuthenticationFailed)
        assert f"rejected user '{user}' with SCRAM-SHA-256" in str(problem)
        for _ in range(3):
            producer.send(TOPIC, b"3").exception(AT_ONCE)
        assert len(lines_about(caplog, f"'{user}'")) == 1
        # The producer is not broken: it works again as soon as its login does.
        alter(sasl, {user: "first"})
        until(lambda: producer.send(TOPIC, b"4").exception(AT_ONCE) is None, "the producer writes again")


def test_a_consumer_whose_user_was_removed_fails_at_once_and_recovers(
    sasl: SaslBroker, caplog: pytest.LogCaptureFixture
) -> None:
    alter(sasl, {"reader": "first"})
    with ottla.Consumer(**access(sasl, "reader")) as consumer:
        consumer.assign([ottla.TopicPartition(TOPIC, 0)])
        consumer.seek_to_beginning()
        consumer.poll(1)
        alter(sasl, {"reader": None})
        with pytest.raises(SaslAuthenticationFailed, match="user 'reader' with SCRAM-SHA-256"):
            until(lambda: consumer.poll(0.5) and False, "the consumer is rejected", AT_ONCE)
        assert len(lines_about(caplog, "'reader'")) == 1
        alter(sasl, {"reader": "first"})
        with ottla.Producer(bootstrap_servers=sasl.plain) as producer:
            sent = producer.send(TOPIC, b"after").get(AT_ONCE)

        def read_on() -> bool:
            try:
                return any(record.offset == sent.offset for record in consumer.poll(0.5))
            except SaslAuthenticationFailed:
                return False

        until(read_on, "the consumer reads again")


async def test_an_asyncio_admin_and_producer_report_a_wrong_password_at_once(
    sasl: SaslBroker, caplog: pytest.LogCaptureFixture
) -> None:
    alter(sasl, {"nobody": "first"})
    wrong = access(sasl, "nobody", "wrong")
    started = time.monotonic()
    async with AsyncAdmin(**wrong) as admin:
        with pytest.raises(SaslAuthenticationFailed, match="user 'nobody'"):
            await admin.describe_cluster()
    assert len(lines_about(caplog, "'nobody'")) == 1
    async with AsyncProducer(**wrong) as producer:
        with pytest.raises(SaslAuthenticationFailed, match="user 'nobody'"):
            await producer.send_and_wait(TOPIC, b"x")
    assert time.monotonic() - started < AT_ONCE
    assert "wrong" not in caplog.text


def test_a_client_without_sasl_logs_the_hint_at_once_and_has_it_in_its_error(
    sasl: SaslBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with ottla.Producer(bootstrap_servers=sasl.sasl, max_block_ms=1500) as producer:
        with pytest.raises(MetadataTimeout, match=r"if that listener requires SASL, set security\.protocol"):
            producer.send(TOPIC, b"x")
        assert len(lines_about(caplog, "requires SASL")) == 1
    caplog.clear()
    with ottla.Consumer(bootstrap_servers=sasl.sasl) as consumer:
        consumer.assign([ottla.TopicPartition(TOPIC, 0)])
        with pytest.raises(RequestTimedOut, match="if that listener requires SASL"):
            consumer.position(ottla.TopicPartition(TOPIC, 0), timeout=1.5)
        assert len(lines_about(caplog, "requires SASL")) == 1


def test_a_token_provider_that_fails_is_named_and_asked_again(tmp_path: Path) -> None:
    issuer, asked = Issuer(), []

    def provider() -> str:
        asked.append(1)
        if len(asked) in (1, 2):
            raise OSError("the identity provider is away, marker=abc")
        return issuer.token("alice")

    keys = {"sasl.oauthbearer.jwks.endpoint.url": issuer.publish(tmp_path / "jwks.json")}
    with sasl_broker("OAUTHBEARER,PLAIN", **keys) as broker:
        bearer: dict[str, Any] = {
            "bootstrap_servers": broker.sasl,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": provider,
        }
        with ottla.Admin(**bearer) as admin:
            with pytest.raises(OttlaError, match=r"sasl\.oauth\.token\.provider failed \(OSError\)") as caught:
                admin.describe_cluster()
            assert "abc" not in str(caught.value)
        with ottla.Producer(**bearer) as producer:
            producer.send(TOPIC, b"x").get(AT_ONCE)


def test_the_wrong_side_of_tls_is_a_hint_in_the_log_and_in_the_error(
    sasl: SaslBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    config = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(authority.sign("broker"))}
    with ottla.Broker(config=config) as broker:
        trusting: dict[str, Any] = {"security_protocol": "SSL", "ssl_cafile": str(authority.certificate)}
        for servers, options, hint in (
            (broker.bootstrap_servers, {}, "security.protocol"),
            (sasl.plain, trusting, "does not speak TLS"),
        ):
            caplog.clear()
            with ottla.Producer(bootstrap_servers=servers, max_block_ms=1500, **options) as producer:
                with pytest.raises(OttlaError, match=hint):
                    producer.send(TOPIC, b"x")
                assert len(lines_about(caplog, "the client keeps trying")) == 1
                assert len(lines_about(caplog, servers)) == 1
        # A certificate that is not trusted is no hint but a rejection.
        caplog.clear()
        started = time.monotonic()
        stranger = str(Authority(tmp_path / "stranger").certificate)
        with ottla.Consumer(bootstrap_servers=broker.bootstrap_servers, **trusting | {"ssl_cafile": stranger}) as one:
            one.assign([ottla.TopicPartition(TOPIC, 0)])
            with pytest.raises(TlsFailed, match="does not trust"):
                one.poll(60)
        assert time.monotonic() - started < AT_ONCE
        assert len(lines_about(caplog, "does not trust")) == 1
