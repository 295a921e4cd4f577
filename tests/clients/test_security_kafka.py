"""TLS, every SASL mechanism and re-authentication against a real Apache Kafka: `make compat-kafka` runs it.

Our own broker supports neither, so this needs Java; without OTTLA_COMPAT_BROKER=kafka it is skipped.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from clients.certificates import AVAILABLE, Authority
from compat.waiting import until
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.blocking import Admin
from ottla.errors import IllegalSaslState, RequestTimedOut, SaslAuthenticationFailed, UnsupportedSaslMechanism
from ottla.net.client.connection import CannotConnect, Disconnected, NotKafka, TlsFailed

pytestmark = pytest.mark.skipif(
    os.environ.get("OTTLA_COMPAT_BROKER") != "kafka" or not AVAILABLE, reason="needs Apache Kafka and openssl"
)

USER, PASSWORD = "alice", "alice-secret"
MODULES = "org.apache.kafka.common.security"


@dataclass(frozen=True)
class Secured:
    """A Kafka broker with a listener of each kind."""

    plain: str
    sasl: str
    tls: str
    sasl_tls: str
    mutual: str
    authority: Path
    client: Path


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    from benchmarks.apache_kafka import ApacheKafka
    from benchmarks.peer import free_port

    directory = tmp_path_factory.mktemp("kafka-security")
    authority = Authority(directory, "authority")
    keystore = authority.sign("broker", "DNS:localhost").path
    ports = {name: free_port() for name in ("SASL", "TLS", "SASLTLS", "MUTUAL")}
    peer = ApacheKafka(data_dir=directory / "data")
    own = ",".join(f"{name}://localhost:{port}" for name, port in ports.items())
    peer.config = {
        "listeners": f"PLAINTEXT://127.0.0.1:{peer.port},CONTROLLER://127.0.0.1:{peer.controller_port},{own}",
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SSL,SASLTLS:SASL_SSL,MUTUAL:SSL"
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keystore),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "listener.name.mutual.ssl.client.auth": "required",
        **{name: value for listener in ("sasl", "sasltls") for name, value in _sasl(listener).items()},
    }
    with peer:
        plain = f"127.0.0.1:{peer.port}"
        _add_user(plain)
        addresses = [f"localhost:{port}" for port in ports.values()]
        yield Secured(plain, *addresses, authority.certificate, authority.sign("client").path)


def _sasl(listener: str) -> dict[str, str]:
    prefix = f"listener.name.{listener}"
    return {
        f"{prefix}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        f"{prefix}.connections.max.reauth.ms": "1500",
        f"{prefix}.plain.sasl.jaas.config": f'{MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
        f"{prefix}.scram-sha-256.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
        f"{prefix}.scram-sha-512.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
        f"{prefix}.oauthbearer.sasl.jaas.config": (
            f'{MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
        ),
    }


def _add_user(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        wanted = UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
        for future in admin.alter_user_scram_credentials([wanted]).values():
            future.result(20)


def token() -> str:
    """An unsigned token, which Kafka's validator for development accepts."""

    def part(value: dict[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    now = int(time.time())
    return f"{part({'alg': 'none'})}.{part({'sub': USER, 'iat': now, 'exp': now + 600})}."


def asked(address: str, **options: object) -> bool:
    with Admin(bootstrap_servers=address, **options) as admin:
        return bool(admin.describe_cluster().nodes)


def credentials(mechanism: str) -> dict[str, object]:
    if mechanism == "OAUTHBEARER":
        return {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": token}
    return {"sasl_mechanism": mechanism, "sasl_username": USER, "sasl_password": PASSWORD}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_each_mechanism_is_accepted(kafka: Secured, mechanism: str) -> None:
    until(lambda: asked(kafka.sasl, security_protocol="SASL_PLAINTEXT", **credentials(mechanism)), "the user is known")
    trusting = {"ssl_cafile": str(kafka.authority)}
    assert asked(kafka.sasl_tls, security_protocol="SASL_SSL", **trusting, **credentials(mechanism))


def test_tls_alone(kafka: Secured) -> None:
    assert asked(kafka.tls, security_protocol="SSL", ssl_truststore_location=str(kafka.authority))


def test_a_certificate_of_the_client(kafka: Secured) -> None:
    trusting = {"security_protocol": "SSL", "ssl_cafile": str(kafka.authority)}
    assert asked(kafka.mutual, ssl_certfile=str(kafka.client), **trusting)
    with pytest.raises(TlsFailed, match=r"set ssl\.certfile"):
        asked(kafka.mutual, **trusting)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password_is_reported(kafka: Secured, mechanism: str) -> None:
    wrong = {**credentials(mechanism), "sasl_password": "wrong"}
    with pytest.raises(SaslAuthenticationFailed, match=f"rejected user 'alice' with {mechanism}.*check sasl"):
        asked(kafka.sasl, security_protocol="SASL_PLAINTEXT", **wrong)


def test_a_bad_token_is_reported(kafka: Secured) -> None:
    options = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": lambda: "no.jwt.at-all"}
    with pytest.raises(SaslAuthenticationFailed, match=r"check sasl\.oauth\.token\.provider"):
        asked(kafka.sasl, security_protocol="SASL_PLAINTEXT", **options)


def test_the_wrong_protocol_is_reported(kafka: Secured) -> None:
    with pytest.raises(NotKafka, match=r"speaks TLS: set security\.protocol"):
        asked(kafka.tls)
    with pytest.raises((Disconnected, RequestTimedOut), match="requires SASL"):
        asked(kafka.sasl, default_api_timeout_ms=500)
    with pytest.raises(CannotConnect, match="does not speak TLS"):
        asked(kafka.plain, security_protocol="SSL")
    with pytest.raises(TlsFailed, match=r"set ssl\.cafile"):
        asked(kafka.tls, security_protocol="SSL")
    with pytest.raises(IllegalSaslState, match="has no SASL"):
        asked(kafka.plain, security_protocol="SASL_PLAINTEXT", **credentials("PLAIN"))


def test_an_unknown_mechanism_names_the_known(kafka: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    from ottla.net.client.sasl import Sasl

    monkeypatch.setattr(Sasl, "of", classmethod(lambda cls, config: cls("DIGEST-MD5", "a", "b")))
    with pytest.raises(UnsupportedSaslMechanism, match="SCRAM-SHA-256"):
        asked(kafka.sasl, security_protocol="SASL_PLAINTEXT", **credentials("PLAIN"))


async def test_a_session_goes_on_past_its_end(kafka: Secured) -> None:
    """Kafka closes a connection that is used after 1.5 s without re-authentication (KIP-368)."""
    options = {"security_protocol": "SASL_PLAINTEXT", **credentials("SCRAM-SHA-512")}
    async with AsyncAdmin(bootstrap_servers=kafka.sasl, **options) as admin:
        await admin.describe_cluster()
        node = next(iter(admin.cluster.metadata.nodes.values()))
        connection = await admin.cluster.connection(node)
        end = time.monotonic() + 4
        while time.monotonic() < end:
            await admin.describe_log_dirs()
            await asyncio.sleep(0.05)
        assert not connection.closed
        assert await admin.cluster.connection(node) is connection
