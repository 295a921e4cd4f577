"""Coordinators over replicated partitions: offsets, transactions, and the data that transactions write.

The coordinators, their driver and the state of producers are real. The journal is a replicated partition: a response
leaves when its records are committed there. A new leader loads what its log has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from tests.simulation.replication.messages import Coordinate, Write, WriteMarker
from tests.simulation.replication.replica import Replica
from tests.virtual import VirtualCommit, VirtualReply, VirtualWakeup

from ottla import errors
from ottla.coordinator import serde
from ottla.coordinator.config import GroupConfig
from ottla.coordinator.coordinator import Coordinator
from ottla.coordinator.group import TopicInfo
from ottla.driver import Driver
from ottla.metadata.values import NO_LEADER
from ottla.records import BatchHeader
from ottla.storage.producers import Marker, ProducerState
from ottla.transactions import messages as m
from ottla.transactions import records as transaction_records
from ottla.transactions.config import TransactionConfig
from ottla.transactions.coordinator import TransactionCoordinator
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from tests.simulation.replication.broker import Broker
    from tests.simulation.replication.cluster import Cluster

#: The partitions for offsets, for the state of transactions, and for data.
OFFSETS, STATE, DATA = 0, 1, (2, 3)
PARTITIONS = 4
INPUT = "in"
MARKER_TIMEOUT = 1_500
RETRY = 150
_TRANSACTIONAL, _CONTROL = 0x10, 0x30
_TRANSACTIONS = TransactionConfig(transaction_abort_timed_out_transaction_cleanup_interval_ms=500)
Answer = Callable[[Any], None]


class Journal:
    """A replicated partition as the journal of its coordinator."""

    def __init__(self, replica: Replica, encode: Callable[[Any], tuple[bytes, bytes | None]]) -> None:
        self._replica = replica
        self._encode = encode

    def append(self, records: Sequence[Any], /) -> int:
        return self._replica.append_own(tuple(map(self._encode, records)))

    def committed(self, position: int, /) -> VirtualCommit | None:
        return self._replica.committed(position)


class Clock:
    """The clock of a broker."""

    def __init__(self, broker: Broker) -> None:
        self.now = self.elapsed = broker.now


class Shard:
    """A coordinator with its partition, while this broker leads it."""

    def __init__(self, replica: Replica, machine: Any, encode: Any, decode: Any) -> None:
        self.replica = replica
        self.broker = replica.broker
        self.machine = machine
        self.is_open = True
        self.driver: Driver[Any] = Driver(
            machine,
            Journal(replica, encode),
            Clock(replica.broker),
            call_later=self._call_later,
            new_reply=VirtualReply,
            before_send=lambda write: write(),
        )
        log = replica.log
        for entry in log.read(log.log_start_offset, log.log_end_offset):
            for record in filter(None, (decode(*pair) for pair in entry.value)):  # type: ignore[attr-defined]
                machine.replay(record)
        self.driver.wait_for(log.log_end_offset)
        self.driver.begin(machine.loaded)

    def _call_later(self, delay: int, callback: Callable[[], None]) -> VirtualWakeup:
        wakeup = VirtualWakeup(callback)
        self.broker.after(delay, wakeup)
        return wakeup

    def handle(self, request: Coordinate, answer: Answer) -> None:
        """Run an operation."""
        self.run(getattr(self.machine, request.operation), request.request, answer)

    def run(self, operation: Any, request: Any, answer: Answer) -> None:
        try:
            begun = self.driver.begin(operation, request)
        except errors.KafkaError as error:
            answer(error)
            return
        if isinstance(begun, VirtualReply) and not begun.done():
            begun.callbacks.append(answer)
        else:
            answer(begun.result if isinstance(begun, VirtualReply) else begun)

    def close(self) -> None:
        self.is_open = False
        self.driver.close()


class TransactionShard(Shard):
    """The coordinator of transactions. It writes the markers of what it has decided."""

    def __init__(self, replica: Replica, new_producer_id: Callable[[], int]) -> None:
        self._writing: set[m.Markers] = set()
        self._new_producer_id = new_producer_id
        super().__init__(
            replica, TransactionCoordinator(_TRANSACTIONS), transaction_records.encode, transaction_records.decode
        )
        self._finish()

    def handle(self, request: Coordinate, answer: Answer) -> None:
        asked = request.request
        if hasattr(asked, "spare_producer_id") and self.machine.needs_producer_id(asked.transactional_id):
            asked = asked._replace(spare_producer_id=self._new_producer_id())
        self.run(getattr(self.machine, request.operation), asked, answer)

    def _finish(self) -> None:
        """Write the markers of every transaction whose decision is committed, now and later."""
        if not self.is_open:
            return
        decided = [markers for markers in self.machine.unfinished() if markers not in self._writing]
        if decided:
            commit = self.replica.committed(self.replica.log.log_end_offset)
            if commit is None:
                self._write(decided)
            else:
                commit.add_done_callback(lambda done: self._write(decided) if done.exception() is None else None)
        self.broker.after(RETRY, self._finish)

    def _write(self, decided: list[m.Markers]) -> None:
        for markers in decided:
            if self.is_open and markers not in self._writing and self.machine.waits_for(markers):
                self._writing.add(markers)
                missing = {place.partition for place in markers.partitions}
                for index in sorted(missing):
                    self._mark(markers, index, missing)

    def _mark(self, markers: m.Markers, index: int, missing: set[int]) -> None:
        if not self.is_open:
            return
        cluster, broker = self.broker.cluster, self.broker
        leader = broker.image.topics[cluster.topic].states[index].leader
        if leader == NO_LEADER:
            broker.after(RETRY, partial(self._mark, markers, index, missing))
            return

        def answered(answer: Any) -> None:
            if isinstance(answer, int | errors.InvalidProducerEpoch):
                missing.discard(index)
                if not missing and self.is_open:
                    self.run(self.machine.markers_written, markers, lambda _: self._writing.discard(markers))
            elif not isinstance(answer, errors.TransactionCoordinatorFenced):
                broker.after(RETRY, partial(self._mark, markers, index, missing))

        request = WriteMarker(index, markers, self.replica.state.leader_epoch)
        cluster.call(broker, leader, request, MARKER_TIMEOUT, answered)


class Written(NamedTuple):
    """A record of a transaction, or its end, in a log."""

    header: BatchHeader
    value: Any
    commits: bool | None = None
    coordinator_epoch: int = 0


class DataPartition:
    """A partition that transactions write to, with the state of its producers."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.producers = producers_of(replica.log.read(0, replica.log.log_end_offset), replica.index)

    def handle(self, request: Write | WriteMarker, answer: Answer) -> None:
        if isinstance(request, WriteMarker):
            self._mark(request, answer)
        elif self.producers.has_ongoing(request.producer_id, request.producer_epoch):
            self._append(request, answer)
        else:
            self._add(request, answer)

    def _add(self, request: Write, answer: Answer) -> None:
        """Have the coordinator add the partition to the transaction before the first write to it (KIP-890)."""
        broker, cluster = self.replica.broker, self.replica.cluster
        leader = broker.image.topics[cluster.topic].states[STATE].leader
        if leader == NO_LEADER:
            answer(errors.CoordinatorNotAvailable())
            return
        asked = m.AddPartitionsRequest(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            frozenset({TopicPartition(cluster.topic, self.replica.index)}),
            m.SECOND_VERSION,
        )

        def added(found: Any) -> None:
            if isinstance(found, m.AddPartitionsResponse) and not found.error_code:
                self._append(request, answer)
            elif isinstance(found, m.AddPartitionsResponse):
                answer(errors.error_class(found.error_code)(""))
            else:
                answer(errors.CoordinatorNotAvailable())

        cluster.call(broker, leader, Coordinate(STATE, "add_partitions", asked), MARKER_TIMEOUT, added)

    def _append(self, request: Write, answer: Answer) -> None:
        if self.replica.coordinator is not self:
            answer(errors.NotLeaderOrFollower())
            return
        header = _header(request.producer_id, request.producer_epoch, request.sequence, _TRANSACTIONAL)
        known = self.producers.entries.get(request.producer_id)
        duplicate = None if known is None else known.duplicate_of(header)
        try:
            if duplicate is not None:
                self.replica.when_committed(self.replica.log.log_end_offset - 1, answer)
                return
            self.producers.check(header, self.replica.log.log_end_offset)
            self._write(Written(header, request.value), answer)
        except errors.KafkaError as error:
            answer(error)

    def _mark(self, request: WriteMarker, answer: Answer) -> None:
        markers = request.markers
        header = _header(markers.producer_id, markers.producer_epoch, -1, _CONTROL)
        marker = Marker(request.coordinator_epoch, not markers.committed, 0)
        try:
            self.producers.check_marker(header, marker, self.replica.log.log_end_offset, version=markers.version)
            self._write(Written(header, None, markers.committed, request.coordinator_epoch), answer)
        except errors.KafkaError as error:
            answer(error)

    def _write(self, written: Written, answer: Answer) -> None:
        offset = self.replica.append_own(written) - 1
        learn(self.producers, written, offset)
        self.replica.when_committed(offset, answer)

    def close(self) -> None:
        """Nothing is left to do."""


def producers_of(entries: Sequence[Any], index: int) -> ProducerState:
    """Return the state of the producers of a log."""
    producers = ProducerState(TopicPartition("orders", index))
    for offset, entry in enumerate(entries):
        learn(producers, entry.value, offset)
    return producers


def learn(producers: ProducerState, written: Written, offset: int) -> None:
    if written.commits is None:
        producers.update(written.header, offset, offset, 0)
    else:
        marker = Marker(written.coordinator_epoch, not written.commits, 0)
        producers.complete(written.header, marker, offset)


def _header(producer_id: int, epoch: int, sequence: int, attributes: int) -> BatchHeader:
    return BatchHeader(0, 0, 0, 2, 0, attributes, 0, 0, 0, producer_id, epoch, sequence, 1)


def install(cluster: Cluster) -> None:
    """Give the partitions of a cluster their coordinators."""
    ids, producer_ids = count(1), count(1)

    def lead(replica: Replica) -> None:
        if replica.index == OFFSETS:
            topics = {INPUT: TopicInfo(UUID(int=2), 1)}
            machine = Coordinator(GroupConfig(), new_id=lambda: str(next(ids)), topics=lambda: topics)
            replica.coordinator = Shard(replica, machine, serde.encode, serde.decode)
        elif replica.index == STATE:
            replica.coordinator = TransactionShard(replica, lambda: next(producer_ids))
        else:
            replica.coordinator = DataPartition(replica)

    def resign(replica: Replica) -> None:
        coordinator, replica.coordinator = replica.coordinator, None
        if coordinator is not None:
            coordinator.close()

    cluster.on_lead, cluster.on_resign = lead, resign
