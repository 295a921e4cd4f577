"""aiokafka's consumer as a member. Records enter the journal on the event loop, where its callbacks run."""

from __future__ import annotations

from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata

from ...clients.aio import client_error, on_loop, run
from ...clients.base import TP
from ..members import Driver, Journal, Options, Read

ASSIGNORS: dict[str, type[AbstractPartitionAssignor]] = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, driver: AiokafkaDriver) -> None:
        self._driver = driver

    async def on_partitions_assigned(self, assigned: Any) -> None:
        # A member that is about to leave may get partitions that it will not read.
        if not self._driver.is_closing:
            self._driver.journal.assigned(TP(*tp) for tp in assigned)

    async def on_partitions_revoked(self, revoked: Any) -> None:
        await self._driver.hand_over(revoked)


class AiokafkaDriver(Driver):
    is_closing = False

    def __init__(self, options: Options, journal: Journal) -> None:
        super().__init__(options, journal)
        self._consumer = run(self._started())

    async def _started(self) -> AIOKafkaConsumer:
        consumer = self._consumer = AIOKafkaConsumer(**self._config())
        try:
            wanted = {"pattern": self.options.pattern} if self.options.pattern else {"topics": self.options.topics}
            consumer.subscribe(**wanted, listener=Listener(self))
            await consumer.start()
        except BaseException:
            await consumer.stop()
            raise
        return consumer

    def _config(self) -> dict[str, Any]:
        options = self.options
        return {
            "bootstrap_servers": options.bootstrap_servers,
            "group_id": options.group,
            "group_instance_id": options.instance_id,
            "client_id": options.client_id,
            "partition_assignment_strategy": [ASSIGNORS[options.assignor]],
            "session_timeout_ms": options.session_ms,
            "heartbeat_interval_ms": options.heartbeat_ms,
            "max_poll_interval_ms": max(30_000, options.session_ms),
            "enable_auto_commit": options.commit == "auto",
            "auto_commit_interval_ms": 200,
            "auto_offset_reset": options.offset_reset,
            "metadata_max_age_ms": options.metadata_ms,
            "fetch_max_wait_ms": 100,
        }

    async def hand_over(self, partitions: Any) -> None:
        if partitions and self.options.commit in ("handover", "each"):
            try:
                await self._consumer.commit()
            except KafkaError as problem:
                self.journal.failed(client_error(problem))
        self.journal.revoked(TP(*tp) for tp in partitions)

    def poll(self, timeout: float) -> None:
        run(self._poll(timeout))

    async def _poll(self, timeout: float) -> None:
        batches = await self._consumer.getmany(timeout_ms=int(timeout * 1000))
        self.journal.read(
            Read(r.topic, r.partition, r.offset, int(r.value)) for records in batches.values() for r in records
        )

    def commit(self, offsets: dict[TP, tuple[int, str]] | None = None) -> None:
        given = None
        if offsets is not None:
            given = {TopicPartition(*tp): OffsetAndMetadata(*value) for tp, value in offsets.items()}
        run(self._consumer.commit(given))

    def committed(self, partition: TP) -> int | None:
        found: int | None = run(self._consumer.committed(TopicPartition(*partition)))
        return found

    def assignment(self) -> frozenset[TP]:
        return frozenset(TP(*tp) for tp in self._consumer.assignment())

    def seek(self, partition: TP, offset: int) -> None:
        run(on_loop(self._consumer.seek, TopicPartition(*partition), offset))

    def close(self) -> None:
        run(self._close())

    async def _close(self) -> None:
        # This library does not call its listener at the end.
        self.is_closing = True
        await self.hand_over(self._consumer.assignment())
        await self._consumer.stop()
