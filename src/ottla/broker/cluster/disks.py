"""Tells the controller which replicas of this broker are offline because their disk has failed.

As in Kafka, the request is AssignReplicasToDirs, with the id of the lost directory.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING
from uuid import UUID

from ottla import errors
from ottla.metadata.brokers import fail_replicas
from ottla.protocol.apis import ApiKey
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from ottla.broker.cluster.member import Cluster
    from ottla.broker.node import Node

logger = logging.getLogger("ottla.cluster")
#: The directory of replicas that are known to be offline.
LOST = UUID(int=1)
TIMEOUT_MS = 10_000
RETRY_SECONDS = 0.2


class DiskReports:
    """Reports offline replicas until the controller has taken note of them."""

    def __init__(self, node: Node, cluster: Cluster) -> None:
        self._node = node
        self._cluster = cluster
        self._is_pending = False
        self._task: asyncio.Task[None] | None = None

    def report(self) -> None:
        """Tell the controller which replicas are offline now. It is asked until it answers."""
        self._is_pending = True
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._run())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while self._is_pending:
            self._is_pending = False
            try:
                await self._cluster.until_registered()
                await self._send(list(self._node.offline))
            except Exception as error:
                expected = isinstance(error, errors.OttlaError | TimeoutError)
                logger.info("the controller does not know of failed disks yet: %s", error, exc_info=not expected)
                self._is_pending = True
                await asyncio.sleep(RETRY_SECONDS)

    async def _send(self, partitions: list[TopicPartition]) -> None:
        node = self._node
        if self._cluster.is_controller:
            await node.controller.run(fail_replicas, node.metadata, node.id, node.broker_epoch, partitions)
            return
        topics: dict[UUID, list[dict[str, int]]] = {}
        for partition in partitions:
            if (topic := node.metadata.topics.get(partition.topic)) is not None:
                topics.setdefault(topic.topic_id, []).append({"partition_index": partition.partition})
        lost = {"id_": LOST, "topics": [{"topic_id": each, "partitions": rows} for each, rows in topics.items()]}
        response = await self._cluster.requests.ask_controller(
            ApiKey.ASSIGN_REPLICAS_TO_DIRS,
            {"broker_id": node.id, "broker_epoch": node.broker_epoch, "directories": [lost]},
            timeout_ms=TIMEOUT_MS,
        )
        if response.error_code:
            raise errors.error_class(response.error_code)("The controller refused the report of a failed disk.")
