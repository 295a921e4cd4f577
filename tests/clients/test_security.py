"""TLS of clients, through a proxy that terminates TLS in front of our broker, and its errors."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12

from clients.certificates import AVAILABLE, Authority
from clients.tls_proxy import TlsProxy, running
from ottla import Broker
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.values import NewTopic
from ottla.clients.cluster.cluster import Cluster
from ottla.clients.consumer.asynchronous import AsyncConsumer
from ottla.clients.producer.asynchronous import AsyncProducer
from ottla.config.client import ClientConfig
from ottla.errors import ConfigError, OttlaError
from ottla.net.client.connection import CannotConnect, NotKafka, TlsFailed
from ottla.net.client.errors import NoAnswer
from ottla.runtime.loops import new_event_loop
from ottla.types import TopicPartition

pytestmark = pytest.mark.skipif(not AVAILABLE, reason="openssl makes the certificates")


@dataclass(frozen=True)
class World:
    """A broker behind two TLS ports, one of which requires client certificates, and the files to connect with."""

    plain: int
    tls: int
    mutual: int
    authority: Path
    stranger: Path
    client: Path
    unknown_client: Path


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("tls")
    authority, stranger = Authority(directory, "authority"), Authority(directory, "stranger")
    certificate = authority.sign("broker", "DNS:localhost").path
    tls = TlsProxy(certificate)
    mutual = TlsProxy(certificate, clients_signed_by=authority.certificate)
    with running(tls, mutual):
        advertised = {"advertised.listeners": f"PLAINTEXT://localhost:{tls.port}"}
        with Broker(config=advertised, listen="127.0.0.1:0") as broker:
            port = broker.port
            tls.target = mutual.target = ("127.0.0.1", port)
            yield World(
                port,
                tls.port,
                mutual.port,
                authority.certificate,
                stranger.certificate,
                authority.sign("client").path,
                stranger.sign("nobody").path,
            )


def connect(port: int, *, host: str = "localhost", **options: object) -> str | None:
    """Return the cluster's id through one connection; raises the client's error."""

    async def main() -> str | None:
        config = ClientConfig.given({"bootstrap.servers": f"{host}:{port}"}, options)
        cluster = Cluster.of(config)
        try:
            return (await cluster.refresh(())).cluster_id
        finally:
            await cluster.close()

    return asyncio.run(main())


def refusal(port: int, *, host: str = "localhost", **options: object) -> OttlaError:
    with pytest.raises(OttlaError) as caught:
        connect(port, host=host, **options)
    assert f"{host}:{port}" in str(caught.value)
    return caught.value


def test_a_trusted_certificate_is_accepted(world: World) -> None:
    assert connect(world.tls, security_protocol="SSL", ssl_cafile=str(world.authority))


@pytest.mark.parametrize("loop_factory", [new_event_loop, asyncio.new_event_loop])
async def test_records_go_through_tls_both_ways(world: World, loop_factory: Any) -> None:
    topic, value = f"tls-{loop_factory.__module__}", os.urandom(3_000_000)
    options: dict[str, object] = {
        "bootstrap.servers": f"localhost:{world.tls}",
        "security.protocol": "SSL",
        "ssl.cafile": str(world.authority),
    }
    async with AsyncAdmin(options) as admin:
        await admin.create_topics(NewTopic(topic, 1, 1, {"max.message.bytes": 10_000_000}))
    async with AsyncProducer({**options, "max.request.size": 10_000_000}) as producer:
        await producer.send_and_wait(topic, value)
    async with AsyncConsumer(options) as consumer:
        await consumer.assign([TopicPartition(topic, 0)])
        await consumer.seek_to_beginning()
        (record,) = await consumer.poll(20)
        assert record.value == value


def test_certificates_may_be_given_as_text_or_under_kafkas_names(world: World) -> None:
    text = world.authority.read_text()
    assert connect(world.tls, security_protocol="SSL", ssl_truststore_certificates=text)
    assert connect(world.tls, security_protocol="SSL", ssl_truststore_location=str(world.authority))
    own = ssl.create_default_context(cadata=text)
    own.verify_flags &= ~ssl.VERIFY_X509_STRICT  # The authority of these tests has no key usage.
    assert connect(world.tls, security_protocol="SSL", ssl_context=own)


def test_an_unknown_authority_is_reported_with_the_setting(world: World) -> None:
    for options in ({}, {"ssl_cafile": str(world.stranger)}):
        error = refusal(world.tls, security_protocol="SSL", **options)
        assert isinstance(error, TlsFailed)
        assert "authority that this client does not trust" in str(error)
        assert "set ssl.cafile" in str(error)


def test_a_certificate_for_another_host_is_reported_with_both_names(world: World) -> None:
    trusting = {"security_protocol": "SSL", "ssl_cafile": str(world.authority)}
    error = refusal(world.tls, host="127.0.0.1", **trusting)
    assert isinstance(error, TlsFailed)
    assert "is for another host" in str(error)
    assert "'127.0.0.1'" in str(error)
    assert connect(world.tls, host="127.0.0.1", ssl_endpoint_identification_algorithm="", **trusting)


def test_a_plain_client_on_a_tls_port_is_reported(world: World) -> None:
    error = refusal(world.tls)
    assert isinstance(error, NotKafka | CannotConnect)
    assert "security.protocol" in str(error)


def test_a_tls_client_on_a_plain_port_is_reported(world: World) -> None:
    error = refusal(world.plain, security_protocol="SSL", ssl_cafile=str(world.authority))
    assert isinstance(error, NoAnswer)
    assert "does not speak TLS" in str(error)
    assert "security.protocol=PLAINTEXT" in str(error)


def test_a_broker_that_asks_for_a_certificate_gets_it_or_says_so(world: World) -> None:
    trusting = {"security_protocol": "SSL", "ssl_cafile": str(world.authority)}
    assert connect(world.mutual, ssl_certfile=str(world.client), **trusting)
    assert connect(world.mutual, ssl_keystore_location=str(world.client), **trusting)
    text = world.client.read_text()
    assert connect(world.mutual, ssl_keystore_certificate_chain=text, ssl_keystore_key=text, **trusting)
    for certificate in ({}, {"ssl_certfile": str(world.unknown_client)}):
        error = refusal(world.mutual, **trusting, **certificate)
        assert "certificate" in str(error)


def test_java_stores_work_under_kafkas_names(world: World, tmp_path: Path) -> None:
    certificate = x509.load_pem_x509_certificate(world.authority.read_bytes())
    locked = BestAvailableEncryption(b"secret")
    trust, keys = tmp_path / "trust.jks", tmp_path / "keys.jks"  # keytool calls its PKCS12 so, too
    trust.write_bytes(pkcs12.serialize_java_truststore([pkcs12.PKCS12Certificate(certificate, b"ca")], locked))
    own, key = world.client.read_bytes(), load_pem_private_key(world.client.read_bytes(), None)
    assert isinstance(key, EllipticCurvePrivateKey)
    keys.write_bytes(
        pkcs12.serialize_key_and_certificates(b"me", key, x509.load_pem_x509_certificate(own), None, locked)
    )
    options: dict[str, object] = {
        "security_protocol": "SSL",
        "ssl_truststore_location": str(trust),
        "ssl_truststore_password": "secret",
        "ssl_truststore_type": "jks",
        "ssl_keystore_location": str(keys),
        "ssl_keystore_password": "secret",
        "ssl_keystore_type": "PKCS12",
    }
    assert connect(world.mutual, **options)
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.location: cannot open .* Check ssl\.truststore\.password"):
        connect(world.mutual, **{**options, "ssl_truststore_password": "wrong"})
    with pytest.raises(ConfigError, match="has no key"):
        connect(world.mutual, **{**options, "ssl_keystore_location": str(trust)})


def test_a_store_that_only_java_reads_says_how_to_convert_it(tmp_path: Path) -> None:
    old = tmp_path / "old.jks"
    old.write_bytes(bytes.fromhex("feedfeed00000002"))
    with pytest.raises(ConfigError) as caught:
        connect(1, security_protocol="SSL", ssl_truststore_location=str(old), ssl_truststore_password="x")
    command = f"keytool -importkeystore -srckeystore {old} -destkeystore {old}.p12 -deststoretype PKCS12"
    assert command in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ssl_cafile": "/no/such.pem"}, r"ssl\.cafile: there is no file /no/such\.pem"),
        ({"ssl_certfile": "/no/such.pem"}, r"ssl\.certfile: there is no file"),
        ({"ssl_cafile": __file__}, r"ssl\.cafile: .* must be PEM or PKCS12"),
        ({"ssl_truststore_certificates": "text"}, r"ssl\.truststore\.certificates has no PEM"),
        ({"ssl_context": "x"}, r"ssl\.context must be"),
        ({"ssl_enabled_protocols": "SSLv3"}, r"ssl\.enabled\.protocols"),
        ({"security_protocol": "SASL_SSL"}, r"sasl\.username is missing"),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"},
            r"sasl\.oauth\.token\.provider is missing",
        ),
    ],
)
def test_a_mistake_in_the_settings_is_reported_before_anything_is_sent(
    options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        connect(1, **{"security_protocol": "SSL", **options})
