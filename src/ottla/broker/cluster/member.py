"""This broker as a member of a cluster: start, the metadata log, and which brokers are there."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from ottla import errors
from ottla.broker.cluster.controller import ClusterController
from ottla.broker.cluster.disks import DiskReports
from ottla.broker.cluster.fetchers import Fetchers
from ottla.broker.cluster.in_sync import InSync
from ottla.broker.cluster.joining import remember_life
from ottla.broker.cluster.liveness import Watchdog
from ottla.broker.cluster.peers import Peers, endpoint_of
from ottla.broker.cluster.requests import Requests
from ottla.broker.cluster.security import access_to_zookeeper
from ottla.broker.node import Address, Node
from ottla.config import BrokerConfig
from ottla.metadata import MetadataRecord
from ottla.metadata import records as r
from ottla.metadata.brokers import begin_controlled_shutdown
from ottla.metadata.values import BrokerState, Endpoint, Registration
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message
from ottla.zookeeper import layout
from ottla.zookeeper.client import ZooKeeper
from ottla.zookeeper.election import Controller as ElectedController
from ottla.zookeeper.election import Election
from ottla.zookeeper.membership import Membership
from ottla.zookeeper.metadata_log import MetadataLog
from ottla.zookeeper.values import ZooKeeperError

logger = logging.getLogger("ottla.cluster")
#: How long a client that asks who leads waits for new leaders of a broker that is gone.
ELECTION_SECONDS = 0.5
#: How long brokers that are alive, but busy, may keep a client waiting.
CONFIRM_SECONDS = 0.1
#: How long clients are told the address of a broker that is gone.
LEFT_SECONDS = 5.0


class Cluster:
    """What a broker of a cluster has besides its node."""

    def __init__(self, node: Node, zookeeper: ZooKeeper) -> None:
        self._node = node
        self._zookeeper = zookeeper
        self.log = MetadataLog(zookeeper)
        self.peers = Peers(node)
        self.requests = Requests(node, self)
        self.fetchers = Fetchers(node, self.peers)
        self.in_sync = InSync(node, self)
        self.disks = DiskReports(node, self)
        self.controller = ClusterController(node, self.log, self._until_applied, self._begin_term)
        self._membership = Membership(zookeeper, self._registered, self._refused, self._known_epoch)
        self._election = Election(zookeeper, node.id, self._controller_changed)
        self._watchdogs: dict[int, tuple[BrokerState, Watchdog]] = {}
        self.gone: set[int] = set()
        """Brokers whose process seems to be gone, although the metadata does not say so yet."""
        self._left: dict[int, float] = {}
        """When brokers were fenced."""
        self._batches: deque[Sequence[MetadataRecord]] = deque()
        """Replayed, but not applied to the replicas of this broker yet."""
        self._received = self._done = 0
        self._is_leaving = False
        self._news = Signal()
        self._tasks: set[asyncio.Task[None]] = set()

    # ── start and stop ────────────────────────────────────────────────────────────────────────────────────────────

    @classmethod
    async def connect(cls, config: BrokerConfig) -> ZooKeeper:
        """Return a session with ZooKeeper whose nodes are prepared."""
        assert config.zookeeper_connect is not None
        zookeeper = ZooKeeper(
            config.zookeeper_connect,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            connection_timeout_ms=config.zookeeper_connection_timeout_ms or config.zookeeper_session_timeout_ms,
            access=access_to_zookeeper(config),
        )
        await zookeeper.start()
        try:
            await layout.prepare(zookeeper)
        except BaseException:
            await zookeeper.stop()
            raise
        return zookeeper

    async def load(self, bootstrap: Callable[[], Sequence[MetadataRecord]], listeners: tuple[Endpoint, ...]) -> None:
        """Read the metadata. The first broker of a new cluster is elected and writes the first records."""
        metadata = self._node.metadata
        for record in await self.log.load():
            metadata.replay(record)
        self.log.follow(self._on_batch, self._on_reset)
        self._membership.watch(self._members_changed)
        self._election.campaign(lambda epoch: self.controller.begin(epoch, bootstrap), self.controller.end, listeners)
        await self.until(lambda: bool(metadata.cluster_id))

    async def join(self, previous_epoch: int, listeners: tuple[Endpoint, ...]) -> None:
        """Register this broker, and wait until the controller has taken it in. Its logs are open."""
        self._spawn(self._apply())
        node = self._node
        registration = Registration(node.id, -1, previous_epoch, listeners, node.config.broker_rack)
        self._registered(await self._membership.register(registration))
        await self.until_registered()
        await node.replicas.open()
        await self._until_applied()

    async def until_registered(self) -> None:
        """Wait until the controller has taken in this broker."""
        await self.until(self._is_registered)

    def _is_registered(self) -> bool:
        state = self._node.metadata.brokers.get(self._node.id)
        return state is not None and state.epoch == self._node.broker_epoch and not state.is_fenced

    async def leave(self) -> None:
        """Hand leaderships over before a clean stop (controlled shutdown)."""
        node, config = self._node, self._node.config
        self._is_leaving = True
        if not config.controlled_shutdown_enable:
            return
        for _ in range(config.controlled_shutdown_max_retries + 1):
            message: Message = {
                "broker_id": node.id,
                "broker_epoch": node.broker_epoch,
                "current_metadata_offset": self.log.position,
                "want_shut_down": True,
            }
            try:
                if self.controller.is_active:
                    operation = begin_controlled_shutdown
                    should_stop = not await self.controller.run(operation, node.metadata, node.id, node.broker_epoch)
                else:
                    response = await self.requests.ask_controller(ApiKey.BROKER_HEARTBEAT, message, timeout_ms=5_000)
                    if response.error_code:
                        raise errors.error_class(response.error_code)("The controller refused the shutdown.")
                    should_stop = response.should_shut_down
            except errors.OttlaError as error:
                logger.info("the controlled shutdown is tried again: %s", error)
                should_stop = False
            if should_stop:
                return
            await asyncio.sleep(min(config.controlled_shutdown_retry_backoff_ms, 500) / 1000)

    async def close(self) -> None:
        """End everything, the session with ZooKeeper last."""
        for _, watchdog in self._watchdogs.values():
            watchdog.stop()
        self.in_sync.close()
        self.disks.close()
        await self.fetchers.close()
        self.controller.close()
        await self._election.stop()
        await self._membership.stop()
        await self.log.stop()
        for task in tuple(self._tasks):
            task.cancel()
        await self.peers.close()
        await self._zookeeper.stop()

    # ── metadata ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_batch(self, position: int, records: Sequence[MetadataRecord]) -> None:
        self._node.metadata.replay_batch(records)
        self._take(records)

    def _on_reset(self, position: int, records: Sequence[MetadataRecord]) -> None:
        """The log has moved on by more than it keeps, so the whole state arrives."""
        metadata = self._node.metadata
        before, with_quotas = set(metadata.topics), list(metadata.client_quotas.values)
        metadata.reset()
        metadata.replay_batch(records)
        gone: list[MetadataRecord] = [r.TopicDeleted(name) for name in before - set(metadata.topics)]
        gone += [r.ClientQuotasSet(whom, {}) for whom in with_quotas if whom not in metadata.client_quotas.values]
        self._take([*gone, *records])

    def _take(self, records: Sequence[MetadataRecord]) -> None:
        self._batches.append(records)
        self._received += 1
        for record in records:
            if isinstance(record, r.BrokerRegistered):
                self.fetchers.moved(record.broker_id)
            if isinstance(record, r.BrokerChanged) and record.is_fenced:
                self._left[record.broker_id] = asyncio.get_running_loop().time()
            if isinstance(record, r.BrokerRegistered | r.BrokerChanged):
                self.in_sync.look_at_all()
                if record.broker_id == self._node.id and self._node.offline:
                    self.disks.report()
        self._watch_brokers()
        self._register_again_if_fenced()
        self._log_elections(records)
        self._news.fire()

    async def _apply(self) -> None:
        """Apply the metadata to the replicas of this broker, batch after batch."""
        replicas = self._node.replicas
        while True:
            while self._batches:
                try:
                    changes = await replicas.apply(self._batches[0])
                    if self._registers_me(self._batches[0]):
                        await replicas.open()  # What came before could not be applied.
                except Exception:
                    logger.exception("a change of the metadata could not be applied")
                else:
                    self._spawn(replicas.tell_groups(changes))
                self._batches.popleft()
                self._done += 1
                self._news.fire()
            await self._news.wait()

    def _registers_me(self, records: Sequence[MetadataRecord]) -> bool:
        return any(isinstance(each, r.BrokerRegistered) and each.broker_id == self._node.id for each in records)

    async def _until_applied(self) -> None:
        """Wait until this broker does what was replayed so far."""
        target = self._received
        await self.until(lambda: self._done >= target)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds. It is looked at after each change of the metadata or the controller."""
        while not condition():
            await self._news.wait()

    async def catch_up(self) -> None:
        """Wait until this broker does what the controller has decided so far."""
        await self.log.catch_up()
        await self._until_applied()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a task of the cluster failed", exc_info=error)

    def _log_elections(self, records: Sequence[MetadataRecord]) -> None:
        """An election is one line with its reason, on the broker that leads now."""
        for record in records:
            if isinstance(record, r.PartitionsChanged):
                for index, state in record.states.items():
                    if state.leader == self._node.id and logger.isEnabledFor(logging.INFO):
                        logger.info(
                            "%s-%d: leader %d, epoch %d, in sync %s: %s",
                            record.name, index, state.leader, state.leader_epoch, list(state.isr), record.reason,
                        )  # fmt: skip

    # ── who is there ──────────────────────────────────────────────────────────────────────────────────────────────

    def brokers(self, listener: str) -> list[Address]:
        """Return the brokers with a listener of this name, and their addresses for its clients."""
        found = [
            Address(broker.broker_id, endpoint.host, endpoint.port, broker.rack, broker.is_fenced)
            for broker in self._node.metadata.brokers.values()
            for endpoint in broker.listeners
            if endpoint.name == listener
        ]
        return sorted(found)

    @property
    def is_controller(self) -> bool:
        return self.controller.is_active

    @property
    def controller_id(self) -> int:
        """The id of the controller, -1 if there is none."""
        found = self._election.controller_id
        return -1 if found is None else found

    def _members_changed(self, members: Mapping[int, Registration]) -> None:
        self.controller.members_changed(members)

    def _registered(self, epoch: int) -> None:
        """This broker has an epoch: it has started, or its session was lost."""
        self._node.broker_epoch = epoch
        remember_life(self._node.logs.working_dirs, epoch)
        self._register_again_if_fenced()  # The image may have been faster.

    async def _known_epoch(self) -> int:
        """Return the epoch by which the controller knows this broker, -1 if it does not."""
        await self.log.catch_up()
        state = self._node.metadata.brokers.get(self._node.id)
        return -1 if state is None else state.epoch

    def _refused(self, error: Exception) -> None:
        """The session was lost, and another broker has taken the id of this one meanwhile."""
        logger.error("this broker has no role in the cluster any more, stop it: %s", error)

    def _register_again_if_fenced(self) -> None:
        """The controller believed that this broker was dead."""
        state = self._node.metadata.brokers.get(self._node.id)
        epoch = self._node.broker_epoch
        if state is not None and state.is_fenced and state.epoch == epoch >= 0 and not self._is_leaving:
            logger.warning("the controller has fenced this broker; it registers again")
            self._spawn(self._membership.register_again(epoch))

    def _controller_changed(self, controller: ElectedController | None) -> None:
        self._news.fire()

    def _watch_brokers(self) -> None:
        """Hold a connection to every other broker."""
        brokers = self._node.metadata.brokers.values()
        wanted = {each.broker_id: each for each in brokers if each.broker_id != self._node.id and not each.is_fenced}
        for broker_id, (broker, watchdog) in list(self._watchdogs.items()):
            if (now := wanted.get(broker_id)) is None or now.epoch != broker.epoch:
                watchdog.stop()
                del self._watchdogs[broker_id]
                self.gone.discard(broker_id)
        for broker_id, broker in wanted.items():
            if broker_id not in self._watchdogs and broker.listeners:
                endpoint = endpoint_of(broker, self._node.config.inter_broker_listener)
                died = partial(self._broker_died, broker_id, broker.epoch)
                doubt, alive = partial(self.gone.add, broker_id), partial(self.gone.discard, broker_id)
                name = f"broker-{self._node.id}-watch"
                self._watchdogs[broker_id] = (
                    broker,
                    Watchdog(endpoint, name, doubt, died, alive, self.peers.security.current),
                )

    async def _broker_died(self, broker_id: int, epoch: int) -> None:
        """The process of another broker is gone: fence it, or end its term if it was the controller."""
        self.gone.add(broker_id)
        controller = self._election.controller
        try:
            if self.is_controller:
                await self.controller.fence(broker_id, epoch, f"the process of broker {broker_id} is gone")
                await self._membership.remove(broker_id, epoch)
            elif controller is not None and controller.broker_id == broker_id:
                was_it = await self._election.depose_dead(broker_id, controller.czxid)
                logger.warning("broker %d is gone%s", broker_id, ", which was the controller" if was_it else "")
        except (errors.NotController, ZooKeeperError) as error:
            logger.info("the end of broker %d is told again: %s", broker_id, error)

    async def until_led(self) -> None:
        """Wait until the brokers that are gone lead nothing that another broker could lead, but not for long."""
        await self._confirm()
        if not self.gone:
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + ELECTION_SECONDS
        wake = loop.call_later(ELECTION_SECONDS, self._news.fire)
        try:
            while self._leads_still() and loop.time() < deadline:
                await self._news.wait()
        finally:
            wake.cancel()

    async def _confirm(self) -> None:
        """Find out which brokers are gone now. A client that asks has often just lost its connection to one."""
        if asked := [watchdog.confirm() for _, watchdog in self._watchdogs.values()]:
            await asyncio.wait(asked, timeout=CONFIRM_SECONDS)

    def has_just_left(self, broker_id: int) -> bool:
        """Whether a broker is fenced since a few seconds only."""
        return asyncio.get_running_loop().time() < self._left.get(broker_id, -math.inf) + LEFT_SECONDS

    def _leads_still(self) -> bool:
        brokers = self._node.metadata.brokers
        unfenced = {each for each in self.gone if each in brokers and not brokers[each].is_fenced}
        return bool(unfenced) and any(
            state.leader in unfenced and len(state.isr) > 1
            for topic in self._node.metadata.topics.values()
            for state in topic.states
        )

    def _begin_term(self) -> None:
        """This broker is the controller now: fence what is known to be gone."""
        for broker_id in tuple(self.gone):
            broker = self._node.metadata.brokers.get(broker_id)
            if broker is not None:
                self._spawn(self._broker_died(broker_id, broker.epoch))


class Signal:
    """Wakes everybody who waits for news."""

    def __init__(self) -> None:
        self._future: asyncio.Future[None] | None = None

    def fire(self) -> None:
        if self._future is not None:
            self._future.set_result(None)
            self._future = None

    async def wait(self) -> None:
        if self._future is None:
            self._future = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._future)
