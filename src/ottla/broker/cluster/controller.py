"""The active controller: it decides, writes to the metadata log in ZooKeeper, and notices brokers that come and go.

One operation runs at a time, on the image of all committed records. Nothing is replayed before it is committed, so a
controller that was replaced has nothing to undo: its append fails.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ottla import errors
from ottla.broker.controller import Operation
from ottla.broker.replication_metrics import elections
from ottla.machine import Parked
from ottla.metadata import MetadataRecord
from ottla.metadata.brokers import fence_broker, register_broker
from ottla.metadata.partitions import balance_leaders, elect_offline
from ottla.metadata.values import Registration
from ottla.zookeeper.metadata_log import MetadataLog

if TYPE_CHECKING:
    from ottla.broker.node import Node

logger = logging.getLogger("ottla.controller")
Response = TypeVar("Response")
#: After this many batches the log is replaced by a snapshot.
SNAPSHOT_AFTER = 1000


class ClusterController:
    """Runs metadata operations while this broker is the controller of the cluster."""

    def __init__(
        self,
        node: Node,
        log: MetadataLog,
        applied: Callable[[], Awaitable[None]],
        on_active: Callable[[], None],
    ) -> None:
        """``applied`` waits until this broker does what was decided; ``on_active`` is called when a term begins."""
        self._node = node
        self._log = log
        self._applied = applied
        self._on_active = on_active
        self._lock = asyncio.Lock()
        self._term: int | None = None
        self._epoch: int | None = None
        """The epoch of the term, once the image is at the head of the log."""
        self._members: Mapping[int, Registration] = {}
        self._is_snapshotting = False
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def is_active(self) -> bool:
        return self._epoch is not None

    @property
    def epoch(self) -> int:
        """The epoch of this broker as the controller, -1 if it is not the controller."""
        return -1 if self._epoch is None else self._epoch

    @property
    def position(self) -> int:
        """How far this broker has read the metadata log."""
        return self._log.position

    # ── terms ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, epoch: int, bootstrap: Callable[[], Sequence[MetadataRecord]]) -> None:
        """Become the controller. ``bootstrap`` returns the first records of a new cluster."""
        self._term = epoch
        self._spawn(self._begin(epoch, bootstrap))

    async def _begin(self, epoch: int, bootstrap: Callable[[], Sequence[MetadataRecord]]) -> None:
        async with self._lock:
            # Nobody else can write in this epoch, so the head is final.
            await self._log.catch_up()
            if not self._node.metadata.cluster_id and self._term == epoch:
                await self._log.append(bootstrap(), epoch=epoch)
            if self._term != epoch:
                return
            self._epoch = epoch
        logger.info("this broker is the controller in epoch %d", epoch)
        self._on_active()
        await self._reconcile()
        self._spawn(self._balance(epoch))

    def end(self) -> None:
        """Another broker is the controller, or may be."""
        self._epoch = self._term = None

    def members_changed(self, members: Mapping[int, Registration]) -> None:
        """The brokers that are registered in ZooKeeper have changed."""
        self._members = members
        if self.is_active:
            self._spawn(self._reconcile())

    async def _reconcile(self) -> None:
        """Register brokers that came and fence those that are gone."""
        try:
            for registration in list(self._members.values()):
                if await self.run(register_broker, self._node.metadata, registration):
                    logger.info("broker %d has started, epoch %d", registration.broker_id, registration.epoch)
            for broker in list(self._node.metadata.brokers.values()):
                here = self._members.get(broker.broker_id)
                if not broker.is_fenced and (here is None or here.epoch < broker.epoch):
                    reason = f"broker {broker.broker_id} stopped"
                    await self.fence(broker.broker_id, broker.epoch, reason)
        except errors.NotController:
            pass

    async def fence(self, broker_id: int, epoch: int, reason: str) -> None:
        """Take a broker out of service."""
        if await self.run(fence_broker, self._node.metadata, broker_id, epoch, reason):
            logger.warning("broker %d is fenced: %s", broker_id, reason)

    async def _balance(self, epoch: int) -> None:
        """Move leaderships back to preferred leaders now and then, and look for partitions that can be online again."""
        while self._epoch == epoch:
            config = self._node.config
            await asyncio.sleep(config.leader_imbalance_check_interval_seconds)
            if self._epoch != epoch:
                return
            try:
                await self.run(elect_offline, self._node.metadata)
                if config.auto_leader_rebalance_enable:
                    percent = config.leader_imbalance_per_broker_percentage
                    moved = await self.run(balance_leaders, self._node.metadata, percent)
                    if moved:
                        logger.info("%d partitions are led by their preferred broker again", moved)
            except errors.NotController:
                return

    # ── operations ────────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self, operation: Operation[Response], /, *args: Any, **kwargs: Any) -> Response:
        """Decide, write, replay, and apply to this broker; raise NotController on any other broker."""
        async with self._lock:
            epoch = self._epoch
            if epoch is None:
                raise errors.NotController("This broker is not the controller. Refresh the metadata.")
            begun = time.perf_counter()
            outcome = operation(*args, **kwargs, now=self._node.clock.now())
            if outcome.records:
                elected, unclean = elections(outcome.records, self._node.metadata)
                await self._log.append(outcome.records, epoch=epoch)
                if elected:
                    self._node.metrics.replication.elected(time.perf_counter() - begun, unclean=unclean)
                self._snapshot_if_long(epoch)
        if outcome.records:
            await self._applied()
        assert not isinstance(outcome.response, Parked)
        return outcome.response

    def _snapshot_if_long(self, epoch: int) -> None:
        position = self._log.position
        if position - self._log.snapshot_position >= SNAPSHOT_AFTER and not self._is_snapshotting:
            self._is_snapshotting = True
            self._spawn(self._write_snapshot(list(self._node.metadata.snapshot()), position, epoch))

    async def _write_snapshot(self, records: list[MetadataRecord], position: int, epoch: int) -> None:
        try:
            await self._log.write_snapshot(records, position, epoch=epoch)
        finally:
            self._is_snapshotting = False

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            if isinstance(error, errors.NotController):
                logger.info("another broker has become the controller")
            else:
                logger.error("the controller failed", exc_info=error)

    def close(self) -> None:
        self.end()
        for task in tuple(self._tasks):
            task.cancel()
