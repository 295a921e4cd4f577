"""kafka-python's consumer as a member."""

from __future__ import annotations

from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.structs import OffsetAndMetadata

from ...clients.base import TP
from ...clients.kafka_python import translated
from ..members import Driver, Journal, Options, Read

ASSIGNORS: dict[str, type[AbstractPartitionAssignor]] = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
NEVER_MS = 3_600_000


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._journal.assigned(TP(*tp) for tp in assigned)

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._journal.revoked(TP(*tp) for tp in revoked)

    def on_partitions_lost(self, lost: Any) -> None:
        self._journal.lost(TP(*tp) for tp in lost)


class KafkaPythonDriver(Driver):
    #: If a poll ends during a rebalance, the next poll starts the rebalance again.
    poll_seconds = 0.5

    def __init__(self, options: Options, journal: Journal) -> None:
        super().__init__(options, journal)
        with translated():
            self._consumer = KafkaConsumer(**self._config())
            wanted = {"pattern": options.pattern} if options.pattern else {"topics": list(options.topics)}
            self._consumer.subscribe(**wanted, listener=Listener(journal))

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
            # A listener of this library cannot wait for a commit; this commits before a revocation.
            "enable_auto_commit": options.commit in ("auto", "handover"),
            "auto_commit_interval_ms": 200 if options.commit == "auto" else NEVER_MS,
            "auto_offset_reset": options.offset_reset,
            "metadata_max_age_ms": options.metadata_ms,
            "fetch_max_wait_ms": 100,
            "reconnect_backoff_max_ms": 500,
        }

    def poll(self, timeout: float) -> None:
        with translated():
            batches = self._consumer.poll(timeout_ms=timeout * 1000)
        # kafka-python 3.0 forgets a join that this poll did not finish if new topics were the reason for it: then it
        # sends no heartbeats and never joins again. This makes the next poll wait for it.
        coordinator = self._consumer._coordinator
        if coordinator._join_task is not None:
            coordinator.rejoin_needed = True
        self.journal.read(
            Read(r.topic, r.partition, r.offset, int(r.value)) for records in batches.values() for r in records
        )

    def commit(self, offsets: dict[TP, tuple[int, str]] | None = None) -> None:
        given = None
        if offsets is not None:
            given = {TopicPartition(*tp): OffsetAndMetadata(o, text, -1) for tp, (o, text) in offsets.items()}
        with translated():
            self._consumer.commit(given)

    def committed(self, partition: TP) -> int | None:
        with translated():
            found: int | None = self._consumer.committed(TopicPartition(*partition))
        return found

    def assignment(self) -> frozenset[TP]:
        return frozenset(TP(*tp) for tp in self._consumer.assignment())

    def seek(self, partition: TP, offset: int) -> None:
        self._consumer.seek(TopicPartition(*partition), offset)

    def close(self) -> None:
        self._consumer.close()
