"""A broker on an event loop: starts and stops its data directory, metadata and connections in the right order.

``broker.py`` runs one in a thread for programs and tests; ``ottla broker`` runs one in the main thread.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.broker.authentication.listener import SaslListener
from ottla.broker.authorization import new_authorizer
from ottla.broker.cluster.joining import new_cluster_id, refuse_member_of_cluster, require_first_directory
from ottla.broker.configs import replication_settings, use_dynamic_configs
from ottla.broker.connection_rates import Rates
from ottla.broker.controller import FileController
from ottla.broker.dispatch import Dispatcher
from ottla.broker.groups import Groups
from ottla.broker.locked_out import locked_out
from ottla.broker.node import Node
from ottla.broker.quotas import use_quotas
from ottla.broker.transactions import Transactions
from ottla.config import BrokerConfig
from ottla.config.listeners import Listener, parse_address
from ottla.config.open_doors import open_doors
from ottla.errors import OttlaError
from ottla.metadata import Metadata, MetadataRecord
from ottla.metadata.records import (
    BrokerRegistered,
    ClusterCreated,
    LeaderEpochsRaised,
    TopicDeleted,
    from_json,
    to_json,
)
from ottla.metadata.values import Endpoint
from ottla.metrics.server import MetricsServer
from ottla.net.server.channel import Channel, PlainChannel
from ottla.net.server.connection import Answer, Connection, Later
from ottla.net.server.listener import Limits, Server
from ottla.net.server.tls_listener import TlsListener
from ottla.net.server.turn import Turn
from ottla.runtime.clock import Clock, SystemClock
from ottla.runtime.journal import FileJournal
from ottla.runtime.limits import raise_open_files_limit
from ottla.runtime.runner import Runner
from ottla.storage.log import Log
from ottla.storage.manager import LogManager, OpenReport

if TYPE_CHECKING:
    from ottla.broker.faults.control import Control
    from ottla.broker.faults.http import ControlServer

logger = logging.getLogger("ottla.broker")
JOURNAL = "metadata.journal"
_NEVER = 10.0**9
#: With Kafka's default of 50, clients that all connect at once would wait for a second: their first packets are lost.
LARGE_BACKLOG = 4096
#: How long a start waits for coordinators before it serves clients.
LOADING_SECONDS = 0.25


class BrokerServer:
    """One broker. Call all methods on its event loop.

    ``durable_metadata=False`` skips the fsync of topics and configs, for brokers with temporary data.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock | None = None,
        durable_metadata: bool = True,
        prepare: Callable[[Node], Awaitable[None]] | None = None,
    ) -> None:
        """``prepare`` runs before the first client is served."""
        self.config = config
        self._prepare = prepare
        self.clock = self._clock = clock or SystemClock()
        self._durable_metadata = durable_metadata
        self._node: Node | None = None
        self._logs: LogManager | None = None
        self._journal: FileJournal[MetadataRecord] | None = None
        self._servers: list[Server] = []
        self._sasl: dict[str, SaslListener] = {}
        """The listeners whose clients must authenticate."""
        self._tls: dict[str, TlsListener] = {}
        """The certificates of the listeners with TLS."""
        self._metrics_server: MetricsServer | None = None
        self._control_server: ControlServer | None = None
        self._turn = Turn()
        self._deleted: set[UUID] = set()
        """Topics that the journal deletes. A crash may have left their files."""

    @property
    def node(self) -> Node:
        """The state that handlers work on."""
        assert self._node is not None, "the broker has not been started"
        return self._node

    @property
    def host(self) -> str:
        """The host that the first listener is bound to."""
        return self._servers[0].host

    @property
    def port(self) -> int:
        """The port that the first listener is bound to."""
        return self._servers[0].port

    @property
    def cluster_id(self) -> str:
        """The id of the cluster, stored in the data directory."""
        return self.node.metadata.cluster_id

    @property
    def servers(self) -> list[Server]:
        """One server for each listener."""
        return self._servers

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """The address that serves metrics, if there is one."""
        if self._metrics_server is None or self.config.ottla_metrics_listener is None:
            return None
        return parse_address(self.config.ottla_metrics_listener)[0], self._metrics_server.port

    @cached_property
    def control(self) -> Control:
        """Injects faults, for tests."""
        from ottla.broker.faults.control import Control  # Only tests need it.

        return Control(self)

    @property
    def faults_address(self) -> tuple[str, int] | None:
        """The address that takes orders for faults, if there is one."""
        return None if self._control_server is None else self._control_server.address

    async def start(self) -> None:
        """Lock the data directory, recover its logs and start to serve. Raises OttlaError if that fails."""
        try:
            await self._start()
        except BaseException:
            await self._release(clean=False)
            raise

    async def _start(self) -> None:
        raise_open_files_limit()
        for door in open_doors(self.config):
            logging.getLogger("ottla.security").warning("%s", door)
        self._logs = LogManager(tuple(Path(path) for path in self.config.data_dirs), self.config, clock=self._clock)
        self._logs.lock()
        for listener in self.config.listeners:
            self._servers.append(await self._listen(listener))
        report = self._logs.open()
        node = self._node = self._assemble(self._logs)
        await self._authenticate(node)
        if self.config.is_clustered:
            await self._join(node, report)
        else:
            await self._open_alone(node, report)
        self._logs.start_background(asyncio.get_running_loop())
        if self.config.ottla_metrics_listener:
            await self._serve_metrics(node, self.config.ottla_metrics_listener)
        if self.config.ottla_faults_listener:
            from ottla.broker.faults.http import serve_control

            self._control_server = await serve_control(self.control, self.config.ottla_faults_listener)
        # Most coordinators are loaded at once. Clients that were connected before need not be told to wait.
        await node.groups.shards.settle(LOADING_SECONDS)
        await node.transactions.shards.settle(LOADING_SECONDS)
        if self._prepare is not None:
            await self._prepare(node)
        for problem in locked_out(node):
            logging.getLogger("ottla.security").warning("%s", problem)
        for server in self._servers:
            server.serve()

    async def _serve_metrics(self, node: Node, address: str) -> None:
        node.metrics.watch(node, self._servers)
        server = MetricsServer(node.metrics.registry.render, *parse_address(address))
        try:
            await server.start()
        except OSError as error:
            raise OttlaError(f"cannot serve metrics on {address}: {error.strerror}; choose another address") from error
        self._metrics_server = server

    async def _listen(self, listener: Listener) -> Server:
        security = self.config.listener(listener.name)
        new_channel: Callable[[socket.socket], Channel] = PlainChannel
        if security.has_tls:
            tls = self._tls[listener.name] = TlsListener(security)
            new_channel = tls.new_channel
        on_connect = self._admit if security.has_sasl else None
        server = Server(
            self._handle, _limits(self.config), self._turn, new_channel, name=listener.name, on_connect=on_connect
        )
        await server.start(listener.host, listener.port)
        return server

    async def _authenticate(self, node: Node) -> None:
        """Prepare the listeners whose clients authenticate with SASL."""
        for listener in self.config.listeners:
            security = self.config.listener(listener.name)
            if security.has_sasl:
                sasl = self._sasl[listener.name] = SaslListener(node, security, self._handle)
                await sasl.open()

    def _admit(self, connection: Connection) -> None:
        self._sasl[connection.listener].admit(connection)

    def _handle(self, connection: Connection, frame: memoryview) -> Answer | Later | Awaitable[Answer]:
        return self._dispatcher.handle(connection, frame)

    def inject(self, dispatcher: Dispatcher | None) -> None:
        """Let another dispatcher handle requests, which injects faults; None for the broker's own again."""
        self._dispatcher = dispatcher or self._own_dispatcher

    async def time_passed(self) -> None:
        """Do everything that is due now, because a manual clock has moved."""
        node = self.node
        for shards in (node.groups.shards, node.transactions.shards):
            for shard in shards.here():
                shard.runner.time()
        await node.logs.catch_up()

    def _assemble(self, logs: LogManager) -> Node:
        metadata = Metadata(lambda topic: replication_settings(node.config, metadata.cluster_configs, topic.configs))
        node = Node(self.config, self._clock, metadata, logs, self._turn)
        node.check_config = self._check_certificates
        node.on_config_change = self._config_changed
        node.on_quotas_change = self._use_rates
        self._rates = Rates(node)
        node.advertised = self._advertised
        node.authorizer = new_authorizer(node)
        node.groups = Groups(node)
        node.transactions = Transactions(node)
        self._dispatcher = self._own_dispatcher = Dispatcher(node)
        node.forwarded = self._dispatcher.forwarded
        logs.high_watermark = node.high_watermark
        if self.config.is_clustered or len(logs.data_dirs) > 1:
            # A broker with one disk and no others that could take over goes on as well as it can.
            logs.on_directory_failed = node.replicas.directory_failed
        return node

    async def _open_alone(self, node: Node, report: OpenReport) -> None:
        """Use the journal in the data directory: this is the only broker."""
        require_first_directory(node.logs)
        refuse_member_of_cluster(node.logs.data_dirs[0])
        journal = self._open_journal(node)
        metadata = node.metadata
        if not metadata.cluster_id:
            metadata.replay(ClusterCreated(new_cluster_id()))
        elif not report.clean:
            metadata.replay(LeaderEpochsRaised())
        metadata.replay(self._registration(metadata))
        journal.rewrite(metadata.snapshot())
        epoch = metadata.brokers[self.config.id].epoch
        node.controller = FileController(Runner(metadata, journal, self._clock), node.replicas, epoch)
        await self._open_topics(node)

    def _open_journal(self, node: Node) -> FileJournal[MetadataRecord]:
        """Replay the journal of the data directory. Topics without a broker in it belong to this one."""
        metadata, path = node.metadata, node.logs.data_dirs[0] / JOURNAL
        journal = self._journal = FileJournal(path, to_json, from_json, fsync=self._durable_metadata)
        for record in journal.open():
            if isinstance(record, TopicDeleted):
                self._deleted.add(metadata.topics[record.name].topic_id)
            metadata.replay(record)
        for record in list(metadata.adopted_by(self.config.id)):
            metadata.replay(record)
        return journal

    async def _join(self, node: Node, report: OpenReport) -> None:
        """Become a member of a cluster: the metadata is in ZooKeeper."""
        # Imported here because only clusters need ZooKeeper's client.
        from ottla.broker.cluster.joining import Joining
        from ottla.broker.cluster.member import Cluster

        zookeeper = await Cluster.connect(self.config)
        cluster = node.cluster = Cluster(node, zookeeper)
        node.controller = cluster.controller
        joining = Joining(node, JOURNAL)
        await cluster.load(joining.first_records, self._endpoints())
        joining.check()
        await self._open_topics(node)
        joining.joined()
        await cluster.join(joining.previous_epoch(report.broker_epoch), self._endpoints())
        node.producer_ids.prepare()

    def _endpoints(self) -> tuple[Endpoint, ...]:
        """Return the addresses that other brokers and clients are told."""
        shown = [self._advertised(listener.name) for listener in self.config.listeners]
        return tuple(Endpoint(each.name, each.host or socket.getfqdn(), each.port) for each in shown)

    def _registration(self, metadata: Metadata) -> BrokerRegistered:
        """Return the record of this start. The only broker needs no address in it."""
        before = metadata.brokers.get(self.config.id)
        return BrokerRegistered(
            self.config.id, before.epoch + 1 if before is not None else 0, (), self.config.broker_rack
        )

    def _advertised(self, name: str) -> Listener:
        """Return the address of a listener for clients. An empty host means the one that the client connected to."""
        (port,) = (server.port for server in self._servers if server.name == name)
        for listener in self.config.advertised_listeners or ():
            if listener.name == name:
                return listener._replace(port=listener.port or port)
        (mine,) = (listener for listener in self.config.listeners if listener.name == name)
        return mine._replace(host="" if mine.is_any_host else mine.host, port=port)

    async def _open_topics(self, node: Node) -> None:
        for log in list(node.logs.logs.values()):
            self._adopt(node, log)
        node.replicas.miss_failed_disks()
        await node.replicas.open()
        use_dynamic_configs(node)
        use_quotas(node)

    def _adopt(self, node: Node, log: Log) -> None:
        """Keep a log from disk if its topic exists, else remove it or set it aside."""
        topic_partition = log.topic_partition
        topic = node.metadata.topics.get(topic_partition.topic)
        index = topic_partition.partition
        fits = topic is not None and index < topic.partitions and node.id in topic.states[index].replicas
        # A crash while the directory was created leaves it empty and without an id.
        if fits and topic is not None and log.topic_id in (topic.topic_id, UUID(int=0)):
            log.topic_id = topic.topic_id
        elif log.topic_id in self._deleted:
            node.logs.delete(topic_partition)
        else:
            logger.warning("%s belongs to no known topic; it is renamed to end in -stray", log.directory.name)
            node.logs.set_aside(topic_partition)

    def _config_changed(self) -> None:
        config = self.node.config
        for name, tls in self._tls.items():
            tls.change(config.listener(name))
        for server in self._servers:
            server.limits = _limits(self.node.config)
        self._use_rates()
        self.node.logs.broker_config = self.node.config

    def _use_rates(self) -> None:
        rates = self._rates if self._rates.are_limited else None
        for server in self._servers:
            server.rates = rates

    def _check_certificates(self, config: BrokerConfig) -> None:
        for name, tls in self._tls.items():
            tls.check(config.listener(name))

    async def stop(self) -> None:
        """Stop serving, write checkpoints and unlock the data directory."""
        await self._release(clean=True)

    async def _release(self, *, clean: bool) -> None:
        if self._metrics_server is not None:
            await self._metrics_server.stop()
            self._metrics_server = None
        if self._control_server is not None:
            await self._control_server.stop()
            self._control_server = None
        node = self._node
        if node is not None and node.cluster is not None and clean:
            await node.cluster.leave()
        for server in self._servers:
            await server.stop()
        for sasl in self._sasl.values():
            sasl.close()
        for tls in self._tls.values():
            tls.close()
        if node is not None:
            await node.changes.finish()
            node.producer_ids.close()
            if node.cluster is not None:
                await node.cluster.close()
            if hasattr(node, "controller"):
                node.controller.close()
            node.transactions.shards.close()
            node.groups.shards.close()
        if self._logs is not None:
            await self._logs.stop_background()
            if node is not None:
                self._logs.broker_epoch = node.broker_epoch
            self._logs.close(clean=clean and node is not None)
            self._logs = None
        if self._journal is not None:
            self._journal.close()
            self._journal = None


def _limits(config: BrokerConfig) -> Limits:
    idle = config.connections_max_idle_ms
    return Limits(
        max_request_size=config.socket_request_max_bytes,
        max_connections=config.max_connections,
        max_connections_from=config.max_connections_from,
        idle_seconds=_NEVER if idle < 0 else idle / 1000,
        receive_seconds=config.ottla_request_receive_timeout_ms / 1000,
        authentication_seconds=config.ottla_authentication_timeout_ms / 1000,
        max_strangers_per_ip=config.ottla_authentication_max_connections_per_ip,
        backlog=config.socket_listen_backlog_size if "socket.listen.backlog.size" in config.given else LARGE_BACKLOG,
        send_buffer=config.socket_send_buffer_bytes if "socket.send.buffer.bytes" in config.given else -1,
        receive_buffer=config.socket_receive_buffer_bytes if "socket.receive.buffer.bytes" in config.given else -1,
    )
