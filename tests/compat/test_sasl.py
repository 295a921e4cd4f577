"""Every SASL mechanism with and without TLS, with other people's clients and ours."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.authorities import Authority
from tests.compat.sasl_clients import CLIENTS, TOPIC, Access, Refused
from tests.compat.waiting import until
from tests.issuers import Issuer

import ottla

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
#: The other two try again until their time is over, and do not say why.
SAYING_WHY = ("ottla", "confluent")
ISSUER = Issuer()


@dataclass(frozen=True)
class World:
    """A broker with a listener of each kind. The listener FEW has only one mechanism."""

    addresses: dict[str, str]
    authority: Path

    def access(self, protocol: str, mechanism: str) -> Access:
        secret = ISSUER.token("alice") if mechanism == "OAUTHBEARER" else "alice-secret"
        authority = self.authority if protocol == "SASL_SSL" else None
        return Access(self.addresses[protocol], mechanism, "alice", secret, authority)

    def values(self) -> set[bytes]:
        """Return what was written."""
        with ottla.Consumer(bootstrap_servers=self.addresses["PLAINTEXT"]) as consumer:
            consumer.assign([ottla.TopicPartition(TOPIC, 0)])
            consumer.seek_to_beginning()
            (end,) = consumer.end_offsets([ottla.TopicPartition(TOPIC, 0)]).values()
            found: set[bytes] = set()
            while consumer.position(ottla.TopicPartition(TOPIC, 0)) < end:
                found |= {record.value for record in consumer.poll(5)}
            return found


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("sasl")
    authority = Authority(directory)
    names = ("SASL_PLAINTEXT", "SASL_SSL", "FEW", "PLAINTEXT")
    config = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in names),
        "listener.security.protocol.map": (
            "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL,FEW:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT"
        ),
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.few.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "sasl.oauthbearer.jwks.endpoint.url": ISSUER.publish(directory / "jwks.json"),
        "ssl.keystore.location": str(authority.sign("broker")),
        "connections.max.reauth.ms": "60000",
    }
    with ottla.Broker(config=config) as broker:
        servers = broker._running().servers
        addresses = {name: f"127.0.0.1:{server.port}" for name, server in zip(names, servers, strict=True)}
        with ottla.Admin(bootstrap_servers=addresses["PLAINTEXT"]) as admin:
            admin.create_topics(ottla.NewTopic(TOPIC, 1))
            admin.alter_users({"alice": "alice-secret"})
        yield World(addresses, authority.certificate)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("using", CLIENTS)
def test_a_user_writes(world: World, using: str, mechanism: str, protocol: str) -> None:
    value = f"{using} {mechanism} {protocol}".encode()
    CLIENTS[using](world.access(protocol, mechanism), value)
    assert value in world.values()


def _refusals() -> Iterator[object]:
    """All combinations. Clients that try again for seconds do so with and without TLS in turn in the short run."""
    for using in CLIENTS:
        for number, mechanism in enumerate(MECHANISMS):
            for turn, protocol in enumerate(PROTOCOLS):
                is_long = using not in SAYING_WHY and turn != number % 2
                yield pytest.param(using, mechanism, protocol, marks=[pytest.mark.long] if is_long else [])


@pytest.mark.parametrize(("using", "mechanism", "protocol"), list(_refusals()))
def test_a_wrong_secret_is_refused(
    world: World, using: str, mechanism: str, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    secret = ISSUER.token("alice", seconds=-60) if mechanism == "OAUTHBEARER" else "wrong"
    told = _refusal(using, replace(world.access(protocol, mechanism), secret=secret))
    if using in SAYING_WHY:
        assert {"PLAIN": "Invalid username", "OAUTHBEARER": "expired"}.get(mechanism, "invalid cred") in told
    assert secret not in told
    until(lambda: f"authentication with {mechanism} failed" in _logged(caplog, "ottla"), "the broker has logged it")
    assert secret not in _logged(caplog, "ottla")


@pytest.mark.parametrize("using", CLIENTS)
def test_a_mechanism_that_is_not_enabled_is_refused(world: World, using: str, caplog: pytest.LogCaptureFixture) -> None:
    access = replace(world.access("SASL_PLAINTEXT", "PLAIN"), address=world.addresses["FEW"])
    told = _refusal(using, access)
    if using in SAYING_WHY:
        assert "SCRAM-SHA-512" in told
    until(lambda: "the SASL mechanism 'PLAIN' is not enabled" in _logged(caplog, "ottla"), "the broker has logged it")


def _refusal(using: str, access: Access) -> str:
    """Return what a client says that is refused. What it leaves open is collected here."""
    try:
        CLIENTS[using](access, b"refused")
    except Refused as refused:
        told = str(refused)
    else:
        pytest.fail("the client was not refused")
    gc.collect()
    return told


def _logged(caplog: pytest.LogCaptureFixture, *libraries: str) -> str:
    return "\n".join(record.getMessage() for record in caplog.records if record.name.split(".")[0] in libraries)


def test_nothing_of_what_was_refused_is_there(world: World) -> None:
    assert b"refused" not in world.values()
