"""ZooKeeper with TLS, SASL and ACLs: brokers work, and strangers see nothing."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

import ottla
from authorities import Authority
from ottla.cluster import zookeeper as local
from ottla.cluster.ports import free_port
from ottla.cluster.processes import ChildProcess
from ottla.errors import ConfigError, OttlaError

USER, PASSWORD = "broker", "between us"
_JAAS = """Server {{
  org.apache.zookeeper.server.auth.DigestLoginModule required user_{user}="{password}";
}};
"""


class SecureZooKeeper(local.LocalZooKeeper):
    """A server with a port for TLS, which also knows a user of SASL."""

    def __init__(self, directory: Path, authority: Authority) -> None:
        super().__init__(directory)
        self._authority = authority
        self.secure_port = 0

    def launch(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.port, self.secure_port = free_port(), free_port()
        config, jaas = self.data_dir / "zoo.cfg", self.data_dir / "jaas.conf"
        text = local._CONFIG.format(port=self.port, host=local.HOST, data=self.data_dir.absolute())
        config.write_text(f"{text}secureClientPort={self.secure_port}\n")
        jaas.write_text(_JAAS.format(user=USER, password=PASSWORD))
        options = {
            "java.security.auth.login.config": jaas,
            "zookeeper.authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            "zookeeper.serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "zookeeper.ssl.keyStore.location": self._authority.sign("zookeeper"),
            "zookeeper.ssl.keyStore.type": "PEM",
            "zookeeper.ssl.trustStore.location": self._authority.certificate,
            "zookeeper.ssl.trustStore.type": "PEM",
            "zookeeper.ssl.clientAuth": "want",
        }
        jars = sorted(Path(local._class_path().split(":")[0]).parent.glob("netty-*.jar"))
        path = ":".join([local._class_path(), *map(str, jars)])
        given = [f"-D{name}={value}" for name, value in options.items()]
        command = [str(local._java()), *local._JAVA_OPTIONS, *given, "-cp", path, local._MAIN, str(config)]
        self._process = ChildProcess(command, self.log_file)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[SecureZooKeeper]:
    with SecureZooKeeper(tmp_path_factory.mktemp("zookeeper"), authority) as running:
        yield running


def config(directory: Path, zookeeper: str, **more: str) -> dict[str, str]:
    return {"log.dirs": str(directory / "data"), "zookeeper.connect": zookeeper, **more}


DIGEST = {"ottla.zookeeper.digest": f"{USER}:{PASSWORD}", "zookeeper.set.acl": "true"}
SASL = {
    "ottla.zookeeper.jaas.config": f'x.DigestLoginModule required username="{USER}" password="{PASSWORD}";',
    "zookeeper.set.acl": "true",
}


def tls(authority: Authority) -> dict[str, str]:
    return {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": str(authority.certificate),
        "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
    }


@pytest.mark.parametrize("login", ["TLS and digest", "SASL", "a certificate"])
def test_a_broker_keeps_its_nodes_from_others(
    server: SecureZooKeeper, authority: Authority, tmp_path: Path, login: str
) -> None:
    name = login.replace(" ", "-")
    settings = {
        "TLS and digest": {**tls(authority), **DIGEST},
        "SASL": SASL,
        "a certificate": {
            **tls(authority),
            "zookeeper.ssl.keystore.location": str(authority.sign("broker")),
            "zookeeper.set.acl": "true",
        },
    }[login]
    address = f"localhost:{server.port if login == 'SASL' else server.secure_port}/{name}"
    with ottla.Broker(config=config(tmp_path, address, **settings)) as broker:
        with ottla.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("orders", b"1").get(30)
        stranger = KazooClient(server.address)
        stranger.start()
        try:
            with pytest.raises(NoAuthError):
                stranger.get(f"/{name}/brokers/ids")
            with pytest.raises(NoAuthError):
                stranger.create(f"/{name}/brokers/ids/7", b"")
        finally:
            stranger.stop()
            stranger.close()


@pytest.mark.parametrize(
    ("secure", "more", "says"),
    [
        (True, {}, "accepts connections but does not answer"),
        (True, {"zookeeper.ssl.client.enable": "true"}, "zookeeper.ssl.client.enable and the certificates"),
        (False, {"ottla.zookeeper.jaas.config": SASL["ottla.zookeeper.jaas.config"].replace(PASSWORD, "wrong")},
         "check zookeeper.connect, ottla.zookeeper.jaas.config"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning")  # kazoo leaves the socket of a failed login open.
def test_a_broker_that_cannot_log_in_says_what_to_check(
    server: SecureZooKeeper, tmp_path: Path, secure: bool, more: dict[str, str], says: str
) -> None:
    address = f"localhost:{server.secure_port if secure else server.port}/never"
    timeout = {"zookeeper.connection.timeout.ms": "800"}
    with pytest.raises(OttlaError) as caught:
        ottla.Broker(config=config(tmp_path, address, **timeout, **more)).start()
    assert says in str(caught.value)
    assert "wrong" not in str(caught.value)
    del caught
    gc.collect()


def test_acls_need_a_login(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.set\.acl needs a login at ZooKeeper"):
        ottla.Broker(config=config(tmp_path, "localhost:1", **{"zookeeper.set.acl": "true"}))
