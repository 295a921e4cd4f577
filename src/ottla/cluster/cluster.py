"""``ottla.Cluster``: several brokers and ZooKeeper as processes on this machine.

It is for tests that need failures, for trying things out, and for using several cores.
"""

from __future__ import annotations

import atexit
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from ottla.broker.views import Groups, Topics
from ottla.clients.admin.blocking import Admin
from ottla.clients.admin.values import PartitionDescription, TopicDescription
from ottla.cluster import views
from ottla.cluster.faults import ClusterFaults
from ottla.cluster.member import ClusterBroker
from ottla.cluster.network import Network
from ottla.cluster.ports import free_port, why_not_free
from ottla.cluster.zookeeper import LocalZooKeeper
from ottla.config import BrokerConfig, parse_address
from ottla.errors import ConfigError, KafkaError, OttlaError
from ottla.runtime.temporary import make_temporary
from ottla.storage.data_dir import DataDir
from ottla.types import whole

T = TypeVar("T")

_MOST_REPLICAS = 3
_POLL_SECONDS = 0.05
_OURS = ("node.id", "broker.id", "listeners", "advertised.listeners", "log.dirs", "log.dir", "zookeeper.connect")


class Cluster:
    """Brokers and ZooKeeper as processes of this machine, with ids from 1.

    >>> import ottla
    >>> with ottla.Cluster(brokers=3) as cluster:  # doctest: +SKIP
    ...     with ottla.Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
    ...         producer.send("orders", b"an order").get(10)
    ...         cluster.leader_of("orders", 0).kill()
    ...         producer.send("orders", b"another one").get(10)

    Without ``data_dir`` the data is temporary. ``config`` and keywords (``min_insync_replicas=1``) are configs of all
    brokers. Unless they say otherwise, topics get three replicas, of which two must be in sync, or as many as there
    are brokers. ``zookeeper="host:2181/path"`` uses your own ZooKeeper instead of starting one. ``port=9092`` gives
    the brokers the ports 9092, 9093 and so on; otherwise they are free ones. ``racks`` has one rack for each broker.
    ``progress`` is called with a line about each step. ``faults=True`` lets `faults` inject faults into the brokers,
    over HTTP on loopback; it is the default without ``data_dir``.

    Brokers talk to each other and to clients through this process, so that `ClusterBroker.isolate` can cut them off.
    ``isolation=False`` lets them talk directly, which is faster. All processes end with this one, even if it is
    killed.
    """

    def __init__(
        self,
        brokers: int = 3,
        data_dir: str | Path | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        zookeeper: str | None = None,
        racks: Sequence[str] | None = None,
        port: int | None = None,
        isolation: bool = True,
        faults: bool | None = None,
        progress: Callable[[str], None] | None = None,
        **configs: Any,
    ) -> None:
        whole(brokers, "the number of brokers", least=1, bits=16)
        if racks is not None and len(racks) != brokers:
            raise ConfigError(f"there are {len(racks)} racks for {brokers} brokers: give one for each broker")
        self._count = brokers
        self._racks = list(racks or ())
        self._given_dir = None if data_dir is None else Path(data_dir)
        self._directory = Path()
        self._given_zookeeper = zookeeper
        self._port = port
        self._isolation = isolation
        self._has_faults = data_dir is None if faults is None else faults
        self._progress = progress or (lambda _: None)
        self._values = _checked({**(config or {}), **configs}, zookeeper)
        self._brokers: dict[int, ClusterBroker] = {}
        self._network: Network | None = None
        self._zookeeper: LocalZooKeeper | None = None
        self._lock: DataDir | None = None
        self._is_running = False

    # ── what is there ─────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def brokers(self) -> Mapping[int, ClusterBroker]:
        """The brokers by id."""
        return self._brokers

    def broker(self, broker_id: int) -> ClusterBroker:
        """The broker with this id."""
        if broker_id not in self._brokers:
            known = ", ".join(map(str, self._brokers)) or "none, because it has not been started"
            raise OttlaError(f"there is no broker {broker_id}: the cluster has {known}")
        return self._brokers[broker_id]

    @property
    def bootstrap_servers(self) -> str:
        """The addresses to give to clients, as ``host:port,host:port``."""
        self._check_running()
        return ",".join(broker.address for broker in self._brokers.values())

    @property
    def zookeeper(self) -> LocalZooKeeper:
        """The ZooKeeper that this cluster has started: `kill`, `stop` and `start` it."""
        self._check_running()
        if self._zookeeper is None:
            raise OttlaError(f"the cluster uses the ZooKeeper at {self._given_zookeeper}, which it has not started")
        return self._zookeeper

    @property
    def data_dir(self) -> Path:
        """The directory of all data. The log lines of the processes are in its folder ``logs``."""
        self._check_running()
        return self._directory

    @property
    def faults(self) -> ClusterFaults:
        """Faults for the requests of clients: ``cluster.faults.move_leader("orders")``."""
        return ClusterFaults(
            lambda: [broker.control for broker in self._brokers.values() if broker.state == "running"],
            lambda: self.bootstrap_servers,
        )

    @property
    def topics(self) -> Topics:
        """The topics and what is in them: ``cluster.topics["orders"].records()``."""
        servers = self.bootstrap_servers
        return Topics(partial(views.topics, servers), partial(views.records, servers))

    @property
    def groups(self) -> Groups:
        """The groups: ``cluster.groups["billing"].lag``."""
        servers = self.bootstrap_servers
        return Groups(partial(views.groups, servers), partial(views.group, servers))

    # ── start and stop ────────────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> Self:
        """Start all processes and wait until the brokers know each other."""
        if self._is_running:
            raise OttlaError("the cluster is already running")
        self._directory = make_temporary() if self._given_dir is None else self._given_dir.absolute()
        self._lock = _locked(self._directory)
        self._is_running = True
        atexit.register(self.stop)
        try:
            self._check_ports()
            if self._given_zookeeper is None:
                self._zookeeper = LocalZooKeeper(self._directory / "zookeeper", free_port())
                self._progress(f"starting ZooKeeper on {self._zookeeper.address}")
                self._zookeeper.launch()
            if self._isolation:
                self._network = Network()
            # They load while ZooKeeper does.
            for _ in range(self._count):
                self._add().launch()
            if self._zookeeper is not None:
                self._zookeeper.await_ready()
            self._progress(f"starting brokers {', '.join(map(str, self._brokers))}")
            for broker in self._brokers.values():
                broker.await_ready()
            self.wait_until_ready()
        except BaseException:
            self._end(kill=True)
            raise
        return self

    def stop(self) -> None:
        """Stop all processes and remove temporary data. Does nothing if the cluster is not running."""
        if self._is_running:
            # Nobody needs temporary data any more.
            self._end(kill=self._given_dir is None)

    def add_broker(self, rack: str | None = None) -> ClusterBroker:
        """Start one more broker. It gets replicas of new topics, and of others by reassignment."""
        self._check_running()
        broker = self._add(rack)
        broker.start()
        self.wait_until_ready()
        return broker

    def _check_ports(self) -> None:
        if self._port is None:
            return
        for port in range(self._port, self._port + self._count):
            why = why_not_free(port)
            if why is not None:
                raise OttlaError(
                    f"cannot listen on 127.0.0.1:{port}: {why}; choose another port for the first broker with "
                    "--listen-port, or port= in Python"
                )

    def _add(self, rack: str | None = None) -> ClusterBroker:
        broker_id = len(self._brokers) + 1
        config = {**self._values, "zookeeper.connect": self._zookeeper_of(broker_id)}
        rack = rack or (self._racks[broker_id - 1] if broker_id <= len(self._racks) else None)
        if rack is not None:
            config["broker.rack"] = rack
        for name, value in _defaults(self._count, is_temporary=self._given_dir is None).items():
            config.setdefault(name, value)
        port = None if self._port is None else self._port + broker_id - 1
        broker = ClusterBroker(
            broker_id, self._directory, config, port=port, network=self._network, has_faults=self._has_faults
        )
        self._brokers[broker_id] = broker
        return broker

    def _zookeeper_of(self, broker_id: int) -> str:
        """The address by which a broker reaches ZooKeeper."""
        address = self._given_zookeeper or self.zookeeper.address
        if self._network is None:
            return address
        servers, slash, path = address.partition("/")
        addresses = [parse_address(server.strip()) for server in servers.split(",")]
        return f"127.0.0.1:{self._network.door_to_zookeeper(broker_id, addresses).port}{slash}{path}"

    def _end(self, *, kill: bool) -> None:
        self._is_running = False
        atexit.unregister(self.stop)
        try:
            # The last one first, so that the first replicas of most partitions stop last.
            for broker in reversed(self._brokers.values()):
                broker.rejoin()
                if kill:
                    broker.kill()
                elif broker.state != "stopped":
                    self._progress(f"stopping broker {broker.id}")
                    broker.stop()
        finally:
            for broker in self._brokers.values():
                broker.kill()
            if self._zookeeper is not None:
                self._zookeeper.kill() if kill else self._zookeeper.stop()
            if self._network is not None:
                self._network.stop()
            self._brokers, self._zookeeper, self._network = {}, None, None
            if self._lock is not None:
                self._lock.unlock()
            if self._given_dir is None:
                shutil.rmtree(self._directory, ignore_errors=True)

    def _check_running(self) -> None:
        if not self._is_running:
            raise OttlaError(
                "the cluster is not running: start it with `with Cluster() as cluster:` or cluster.start()"
            )

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    # ── questions ─────────────────────────────────────────────────────────────────────────────────────────────────

    def leader_of(self, topic: str, partition: int = 0, *, timeout: float = 10) -> ClusterBroker:
        """The leader of a partition. Waits while there is none."""

        def leader(admin: Admin) -> int | None:
            described = admin.describe_topics(topic)[topic]
            found = {one.partition: one for one in described.partitions}
            if partition not in found:
                raise OttlaError(f"topic {topic} has no partition {partition}: it has 0 to {len(found) - 1}")
            node = found[partition].leader
            return None if node is None else node.id

        return self.broker(self._await(leader, timeout, f"{topic}-{partition} has no leader"))

    def controller(self, *, timeout: float = 10) -> ClusterBroker:
        """The broker that decides about leaders and topics. Waits while there is none."""

        def controller(admin: Admin) -> int | None:
            node = admin.describe_cluster().controller
            return None if node is None else node.id

        return self.broker(self._await(controller, timeout, "there is no controller"))

    def wait_until_ready(self, *, timeout: float = 30) -> None:
        """Wait until all brokers that run know each other and a controller."""
        wanted = {broker.id for broker in self._brokers.values() if broker.state == "running"}

        def ready(admin: Admin) -> bool | None:
            found = admin.describe_cluster()
            return True if found.controller is not None and wanted <= {node.id for node in found.nodes} else None

        self._await(ready, timeout, "the brokers do not know each other")

    def wait_until_replicated(self, topic: str | None = None, *, timeout: float = 30) -> None:
        """Wait until all replicas of a topic, or of all topics, are in sync."""
        behind: list[str] = []

        def replicated(admin: Admin) -> bool | None:
            names = [topic] if topic is not None else list(admin.list_topics(list_internal=True))
            described = admin.describe_topics(names).values() if names else ()
            behind[:] = [text for one in described for text in _behind(one)]
            return None if behind else True

        try:
            self._await(replicated, timeout, "")
        except OttlaError as error:
            why = "; ".join(behind[:5]) or str(error)
            raise OttlaError(f"not everything is replicated after {timeout:g} s: {why}") from None

    def _await(self, ask: Callable[[Admin], T | None], timeout: float, problem: str) -> T:
        """Ask until there is an answer other than None."""
        deadline = time.monotonic() + timeout
        with self._admin() as admin:
            while True:
                why = problem
                try:
                    answer = ask(admin)
                    if answer is not None:
                        return answer
                except KafkaError as error:
                    why = f"{problem} ({error})" if problem else str(error)
                if time.monotonic() > deadline:
                    raise OttlaError(f"{why}, after {timeout:g} s")
                time.sleep(_POLL_SECONDS)

    @contextmanager
    def _admin(self) -> Iterator[Admin]:
        self._check_running()
        running = [broker.address for broker in self._brokers.values() if broker.state == "running"]
        if not running:
            raise OttlaError("no broker is running: start one with cluster.broker(1).start()")
        with Admin(bootstrap_servers=running, default_api_timeout_ms=2_000, request_timeout_ms=1_000) as admin:
            yield admin


def _locked(directory: Path) -> DataDir:
    """Lock the directory of all data: a second ZooKeeper would damage that of the first."""
    lock = DataDir(directory, user="cluster")
    if lock.has_owner:
        raise OttlaError(f"{directory} has the data of a single broker: use another data directory for the cluster")
    lock.hold()
    return lock


def _behind(topic: TopicDescription) -> Iterator[str]:
    for one in topic.partitions:
        missing = _missing(one)
        if one.leader is None:
            yield f"{topic.name}-{one.partition} has no leader"
        elif missing:
            yield f"{topic.name}-{one.partition} waits for broker {', '.join(map(str, missing))}"


def _missing(partition: PartitionDescription) -> list[int]:
    return sorted({node.id for node in partition.replicas} - {node.id for node in partition.isr})


def _defaults(brokers: int, *, is_temporary: bool) -> dict[str, str]:
    replicas, in_sync = min(_MOST_REPLICAS, brokers), min(_MOST_REPLICAS - 1, max(1, brokers - 1))
    defaults = {
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "zookeeper.connection.timeout.ms": 30_000,
    }
    if is_temporary:
        # Used in tests, where no other member is about to join.
        defaults["group.initial.rebalance.delay.ms"] = 0
    return {name: str(value) for name, value in defaults.items()}


def _checked(values: Mapping[str, Any], zookeeper: str | None) -> dict[str, str]:
    """The configs of all brokers as texts. ConfigError for one that is invalid, or that the cluster sets itself."""
    names = {name.replace("_", ".") for name in values}
    for name in _OURS:
        if name in names:
            raise ConfigError(f"{name} is different for each broker, and the cluster sets it. Remove it.")
    given = BrokerConfig.parse({**values, "zookeeper.connect": zookeeper or "127.0.0.1:2181"}).given
    return {name: text for name, text in given.items() if name in names}
