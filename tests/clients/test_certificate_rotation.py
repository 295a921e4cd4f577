"""New certificates while clients work: by a new file, by AlterConfigs, and under a new authority."""

from __future__ import annotations

import shutil
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.compat.waiting import until

import ottla
from authorities import Authority
from ottla.clients.admin.values import ConfigResource
from ottla.errors import InvalidRequest

LOCATION = "listener.name.ssl.ssl.keystore.location"


class World:
    """A broker, and what its clients trust: an old and a new authority."""

    def __init__(self, directory: Path) -> None:
        self.old, self.new = Authority(directory / "old"), Authority(directory / "new")
        self.trusted = directory / "trusted.pem"
        self.trusted.write_bytes(self.old.certificate.read_bytes() + self.new.certificate.read_bytes())
        self.keystore = directory / "keystore.pem"
        shutil.copy(self.old.sign("first"), self.keystore)
        config = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(self.keystore)}
        self.broker = ottla.Broker(config=config)

    @property
    def access(self) -> dict[str, str]:
        return {
            "bootstrap_servers": self.broker.bootstrap_servers,
            "security_protocol": "SSL",
            "ssl_cafile": str(self.trusted),
        }

    @property
    def certificate(self) -> str:
        """The name in the certificate that a new client gets."""
        context = ssl.create_default_context(cafile=self.trusted)
        with (
            socket.create_connection(("127.0.0.1", self.broker.port)) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as wrapped,
        ):
            certificate = wrapped.getpeercert()
            assert certificate is not None
            return str(dict(part[0] for part in certificate["subject"])["commonName"])  # type: ignore[misc, index]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    with made.broker:
        yield made


def test_clients_keep_working_while_certificates_change(world: World) -> None:
    with ottla.Producer(**world.access, linger_ms=0) as producer, ottla.Admin(**world.access) as admin:
        producer.send("orders", b"1").get(30)
        assert world.certificate == "first"

        shutil.copy(world.new.sign("second"), world.keystore)
        until(lambda: world.certificate == "second", "the new file is used")
        producer.send("orders", b"2").get(30)

        broker = ConfigResource("broker", "1")
        admin.alter_configs({broker: {LOCATION: str(world.new.sign("third"))}})
        until(lambda: world.certificate == "third", "the new location is used")
        producer.send("orders", b"3").get(30)

        with pytest.raises(InvalidRequest, match=r"there is no file /no/such\.pem"):
            admin.alter_configs({broker: {LOCATION: "/no/such.pem"}})
        assert world.certificate == "third"

        admin.alter_configs({broker: {LOCATION: None}})
        until(lambda: world.certificate == "second", "the location of the properties file is used again")
        with pytest.raises(InvalidRequest, match=r"there is no file /no/such\.pem"):
            admin.alter_configs({ConfigResource("broker", ""): {LOCATION: "/no/such.pem"}})  # for all brokers
    with ottla.Consumer(**world.access, auto_offset_reset="earliest", group_id="g") as consumer:
        consumer.subscribe(["orders"])
        found: list[bytes | None] = []
        until(lambda: found.extend(each.value for each in consumer.poll(0.1)) or len(found) == 3, "all records")
    assert found == [b"1", b"2", b"3"]
