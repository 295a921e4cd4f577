"""Leaders ask the controller to change the in-sync replicas of their partitions (AlterPartition)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ottla import errors
from ottla.broker.partition import Partition
from ottla.metadata.partitions import IsrChange, alter_partitions
from ottla.net.client.errors import CannotConnect, Disconnected
from ottla.protocol.apis import ApiKey
from ottla.replication.values import Proposal

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.broker.cluster.member import Cluster
    from ottla.broker.node import Node

logger = logging.getLogger("ottla.replicas")
TIMEOUT_MS = 10_000
RETRY_SECONDS = 0.1


class InSync:
    """Sends the proposals of all leaders of this broker, several in one request."""

    def __init__(self, node: Node, cluster: Cluster) -> None:
        self._node = node
        self._cluster = cluster
        self._dirty: dict[Partition, None] = {}
        self._wake = asyncio.Event()
        self._next_look = 0.0
        """When all partitions are looked at for followers that are too slow."""
        self._task = asyncio.ensure_future(self._run())

    def may_change(self, partition: Partition) -> None:
        """A follower has fetched that is not in sync yet."""
        self._dirty[partition] = None
        self._wake.set()

    def close(self) -> None:
        self._task.cancel()

    def look_at_all(self) -> None:
        """Another broker has changed: high watermarks need not wait for it any more, or it may be in sync."""
        self._next_look = 0.0
        self._wake.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                async with asyncio.timeout_at(max(self._next_look, loop.time())):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            partitions = list(self._dirty)
            self._dirty.clear()
            if loop.time() >= self._next_look:
                self._next_look = loop.time() + self._node.config.replica_lag_time_max_ms / 2000
                partitions = [each for each in self._node.local() if each.leader is not None]
                for partition in partitions:
                    partition.advance(now=self._node.clock.now())
            try:
                await self._propose(partitions)
            except Exception:
                logger.exception("changes of in-sync replicas could not be sent")
                await asyncio.sleep(RETRY_SECONDS)

    async def _propose(self, partitions: list[Partition]) -> None:
        now = self._node.clock.now()
        proposals: dict[Partition, Proposal] = {}
        for partition in partitions:
            if partition.leader is not None and (proposal := partition.leader.proposal(now=now)) is not None:
                proposals[partition] = proposal
        if not proposals:
            return
        # An accepted change counts when the metadata has it: a new min.insync.replicas may have come before it.
        refused = await self._refused(proposals)
        for partition, error in refused.items():
            partition.altered(proposals[partition], error, now=self._node.clock.now())
            logger.info("the in-sync replicas of %s stay for now: %s", partition.log.topic_partition, error)
            self._dirty[partition] = None
        if refused:
            await asyncio.sleep(RETRY_SECONDS)
            self._wake.set()

    async def _refused(self, proposals: dict[Partition, Proposal]) -> dict[Partition, errors.KafkaError]:
        """Send proposals to the controller, which may be this broker, and return what it refuses."""
        node, cluster = self._node, self._cluster
        try:
            if cluster.is_controller:
                changes = [_change(partition, proposal) for partition, proposal in proposals.items()]
                answers = await node.controller.run(
                    alter_partitions, node.metadata, node.id, node.broker_epoch, changes
                )
                pairs = zip(proposals, answers, strict=True)
                return {partition: each for partition, each in pairs if isinstance(each, errors.KafkaError)}
            return await self._refused_elsewhere(proposals)
        except (CannotConnect, Disconnected, errors.OttlaError) as error:
            failure = error if isinstance(error, errors.KafkaError) else errors.NetworkException(str(error))
            return dict.fromkeys(proposals, failure)

    async def _refused_elsewhere(self, proposals: dict[Partition, Proposal]) -> dict[Partition, errors.KafkaError]:
        node = self._node
        topics: dict[UUID, list[dict[str, object]]] = {}
        for partition, proposal in proposals.items():
            topics.setdefault(partition.log.topic_id, []).append(
                {
                    "partition_index": partition.index,
                    "leader_epoch": proposal.leader_epoch,
                    "new_isr_with_epochs": [
                        {"broker_id": member.broker_id, "broker_epoch": member.broker_epoch} for member in proposal.isr
                    ],
                    "partition_epoch": proposal.partition_epoch,
                }
            )
        response = await self._cluster.requests.ask_controller(
            ApiKey.ALTER_PARTITION,
            {
                "broker_id": node.id,
                "broker_epoch": node.broker_epoch,
                "topics": [{"topic_id": topic_id, "partitions": each} for topic_id, each in topics.items()],
            },
            timeout_ms=TIMEOUT_MS,
        )
        if response.error_code:
            return dict.fromkeys(
                proposals, errors.error_class(response.error_code)("The controller refused the request.")
            )
        codes = {
            (topic.topic_id, entry.partition_index): entry.error_code
            for topic in response.topics
            for entry in topic.partitions
        }
        unanswered = errors.UnknownServerError.code
        found = {each: codes.get((each.log.topic_id, each.index), unanswered) for each in proposals}
        return {
            each: errors.error_class(code)("The controller refused the change.") for each, code in found.items() if code
        }


def _change(partition: Partition, proposal: Proposal) -> IsrChange:
    return IsrChange(
        partition.log.topic_id, partition.index, proposal.leader_epoch, proposal.partition_epoch, proposal.isr
    )
