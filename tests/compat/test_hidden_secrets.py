"""A secret of any config never appears: not in logs, errors, responses, metrics, command lines or stored files."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import trustme
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import load_pem_x509_certificate
from tests.crash.broker_process import ROOT, BrokerProcess

import ottla
from ottla.config.broker import BrokerConfig, is_secret
from ottla.config.table import rows

MARK = "mArKeR"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
#: Certificates are not secret, but Kafka gives them the type of passwords, because they have many lines.
PUBLIC = {"ssl.keystore.certificate.chain", "ssl.truststore.certificates"}


def secret(name: str) -> str:
    return f"{MARK}-{name}"


def properties(settings: Mapping[str, object]) -> str:
    lines = ((name, str(value).replace("\n", "\\n")) for name, value in settings.items())
    return "".join(f"{name}={value}\n" for name, value in lines)


class Secured:
    """A broker process whose configs have a marker wherever a secret can be."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = trustme.CA()
        self._write_key(directory / "key.p12")
        settings = {
            "listeners": "SASL_SSL://127.0.0.1:0,INLINE://127.0.0.1:0",
            "listener.security.protocol.map": "SASL_SSL:SASL_SSL,INLINE:SSL",
            "log.dirs": str(directory / "data"),
            "ottla.log.level": "DEBUG",
            "ottla.metrics.listener": "127.0.0.1:0",
            "listener.name.sasl_ssl.ssl.keystore.location": str(directory / "key.p12"),
            "listener.name.sasl_ssl.ssl.keystore.password": secret("keystore"),
            "listener.name.sasl_ssl.ssl.key.password": secret("keystore"),
            "ssl.truststore.password": secret("truststore"),
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "super.users": "User:admin",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": (
                f'{PLAIN} required username="admin" password="{secret("own")}" '
                f'user_admin="{secret("admin")}" user_alice="{secret("alice")}";'
            ),
            "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": f"{SCRAM} required;",
            "listener.name.inline.ssl.keystore.certificate.chain": self.chain,
            "listener.name.inline.ssl.keystore.key": self.key,
            "listener.name.inline.ssl.key.password": secret("inline"),
            # Without effect, because this broker is alone.
            "zookeeper.ssl.keystore.password": secret("zookeeper"),
            "zookeeper.ssl.truststore.password": secret("zookeeper"),
            "ottla.zookeeper.digest": f"broker:{secret('zookeeper')}",
            "ottla.zookeeper.jaas.config": f'{PLAIN} required username="broker" password="{secret("zookeeper")}";',
        }
        self.properties = directory / "server.properties"
        self.properties.touch(mode=0o600)
        self.properties.write_text(properties(settings))
        self.broker = BrokerProcess(directory / "data", directory / "broker.log", {}, config=self.properties)

    def _write_key(self, path: Path) -> None:
        leaf = self.authority.issue_cert("127.0.0.1", "localhost")
        key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
        certificate = load_pem_x509_certificate(leaf.cert_chain_pems[0].bytes())
        encryption = BestAvailableEncryption(secret("keystore").encode())
        path.touch(mode=0o600)
        path.write_bytes(pkcs12.serialize_key_and_certificates(b"broker", key, certificate, None, encryption))  # type: ignore[arg-type]
        inline = BestAvailableEncryption(secret("inline").encode())
        self.key = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, inline).decode()
        self.chain = leaf.cert_chain_pems[0].bytes().decode()

    def client(self, password: str, mechanism: str = "PLAIN", user: str = "alice") -> dict[str, object]:
        return {
            "bootstrap.servers": self.broker.bootstrap_servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
            "ssl.truststore.certificates": self.authority.cert_pem.bytes().decode(),
            "ssl.key.password": secret("client key"),
        }

    @property
    def key_lines(self) -> list[str]:
        """The secret lines of the private key."""
        return [line for line in self.key.splitlines() if not line.startswith("-")]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    secured = Secured(tmp_path_factory.mktemp("secured"))
    try:
        secured.broker.start()
        yield secured
    finally:
        secured.broker.close()


def leaks(secured: Secured, text: str) -> list[str]:
    """Return the lines of a text that have a secret."""
    return [line for line in text.splitlines() if MARK in line or any(part in line for part in secured.key_lines)]


def test_every_secret_config_has_a_marker(secured: Secured) -> None:
    """A new config with a secret must be added here."""
    written = secured.properties.read_text()
    names = {each.name for each in rows(BrokerConfig).values() if is_secret(each.name)} - PUBLIC
    assert [name for name in sorted(names) if name not in written] == []


def test_a_leak_is_found(secured: Secured) -> None:
    assert leaks(secured, f"fine\npassword={secret('alice')}\n{secured.key_lines[1]}") == [
        f"password={secret('alice')}",
        secured.key_lines[1],
    ]


def use(secured: Secured) -> str:
    """Log in well and badly, add users, ask for configs; return everything that was said."""
    said: list[str] = []
    with ottla.Admin(secured.client(secret("admin"), user="admin")) as admin:
        with contextlib.suppress(ottla.errors.TopicAlreadyExists):
            admin.create_topics(["orders"])
        said.append(repr(admin.config))
        said.append(str(admin.describe_configs(ottla.ConfigResource.broker(1), include_synonyms=True)))
    for password, mechanism, user in (
        (secret("wrong"), "PLAIN", "alice"),
        (secret("wrong"), "SCRAM-SHA-256", "alice"),
        (secret("nobody"), "PLAIN", "nobody"),
        (secret("disabled"), "SCRAM-SHA-512", "alice"),
    ):
        with (
            pytest.raises(ottla.errors.OttlaError) as refused,
            ottla.Admin(secured.client(password, mechanism, user)) as admin,
        ):
            admin.describe_cluster()
        said.append(str(refused.value))
    config = secured.client(secret("admin"), user="admin")
    with ottla.Producer(config) as producer:
        producer.send("orders", b"1").result(20)
        said += [repr(producer), repr(producer.config)]
    others = {"ssl.ca.pem": config.pop("ssl.truststore.certificates"), "log_level": 2}
    del config["ssl.key.password"]
    broker = AdminClient(config | others)
    for future in broker.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).values():
        said += [f"{name}={entry.value} {entry.synonyms}" for name, entry in future.result(20).items()]
    return "\n".join(said)


def command(secured: Secured, *arguments: str, password: str = "") -> str:
    """Run a command as the administrator; return what it prints."""
    file = secured.directory / "client.properties"
    settings = {**secured.client(secret("admin"), user="admin")}
    del settings["bootstrap.servers"]
    file.touch(mode=0o600)
    file.write_text(properties(settings))
    done = subprocess.run(
        [sys.executable, "-m", "ottla", *arguments, "-b", secured.broker.bootstrap_servers, "--command-config", file],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "USER_PASSWORD": password},
    )
    return done.stdout + done.stderr


def test_a_secret_is_in_no_output(secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    said = use(secured)
    said += command(secured, "users", "add", "carol", "--password-env", "USER_PASSWORD", password=secret("carol"))
    said += command(secured, "users", "list")
    said += command(secured, "cluster", "status")
    said += command(secured, "topics", "describe", "orders")
    assert "carol" in said
    assert leaks(secured, said) == []
    assert leaks(secured, caplog.text) == []
    log = secured.broker.log_file.read_text()
    assert "authentication" in log.lower()
    assert leaks(secured, log) == []


def test_a_secret_is_in_no_command_line_metric_or_stored_file(secured: Secured) -> None:
    use(secured)
    line = Path(f"/proc/{secured.broker.process.pid}/cmdline")
    if line.exists():
        assert leaks(secured, line.read_text()) == []
    port = secured.broker.metrics_port
    with contextlib.closing(urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10)) as metrics:
        assert leaks(secured, metrics.read().decode()) == []
    for path in (secured.directory / "data").rglob("*"):
        if path.is_file():
            assert leaks(secured, path.read_bytes().decode("latin-1")) == [], path


def test_a_secret_on_the_command_line_is_refused(tmp_path: Path) -> None:
    arguments = ["broker", "--data-dir", str(tmp_path), "--override", f"ssl.key.password={secret('argument')}"]
    done = subprocess.run(
        [sys.executable, "-m", "ottla", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "every user of this machine can read a secret on the command line" in done.stderr
    assert MARK not in done.stderr


@pytest.mark.parametrize("name", ["sasl.password", "ssl.key.password", "ssl.keystore.password", "sasl.jaas.config"])
def test_an_invalid_secret_is_not_shown_in_the_error(name: str) -> None:
    with pytest.raises(ottla.errors.ConfigError) as error:
        ottla.Admin({"bootstrap.servers": "localhost:9092", name: [secret("list")], "security.protocol": "SASL_SSL"})
    assert MARK not in str(error.value)
