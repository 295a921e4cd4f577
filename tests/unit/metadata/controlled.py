"""A cluster's metadata under the controller's operations. Every record goes through JSON, as in the real log."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from ottla.machine import Outcome
from ottla.metadata import Metadata
from ottla.metadata.brokers import begin_controlled_shutdown, fence_broker, register_broker
from ottla.metadata.partitions import IsrChange, alter_partitions
from ottla.metadata.records import MetadataRecord, TopicCreated, from_json, to_json
from ottla.metadata.values import Endpoint, PartitionState, Registration, ReplicationSettings

NOW = 1_700_000_000_000
TOPIC_ID = UUID(int=7)


class Controlled:
    """One topic "orders" on brokers with the ids from 1 on."""

    def __init__(
        self, *, brokers: int = 3, assignments: Sequence[Sequence[int]] = (), min_isr: int = 2, unclean: bool = False
    ) -> None:
        self.settings = ReplicationSettings(min_isr, unclean)
        self.metadata = Metadata(lambda topic: self.settings)
        self.records: list[MetadataRecord] = []
        self.epoch = 100
        self.now = NOW
        for broker_id in range(1, brokers + 1):
            self.start(broker_id)
        if assignments:
            replicas = tuple(map(tuple, assignments))
            self.replay(TopicCreated("orders", TOPIC_ID, len(replicas), {}, replicas))

    def run(self, operation: Callable[..., Outcome[MetadataRecord, Any]], *args: Any, **kwargs: Any) -> Any:
        """Run an operation and replay what it decided."""
        self.now += 1
        outcome = operation(*args, **kwargs, now=self.now)
        for record in outcome.records:
            self.replay(record)
        return outcome.response

    def replay(self, record: MetadataRecord) -> None:
        """Replay a record that has been through the log."""
        again = from_json(json.loads(json.dumps(to_json(record))))
        assert again == record
        self.records.append(again)
        self.metadata.replay(again)

    def start(self, broker_id: int, *, clean: bool = True, rack: str | None = None) -> bool:
        """Register a broker with a new epoch."""
        self.epoch += 1
        known = self.metadata.brokers.get(broker_id)
        previous = known.epoch if clean and known is not None else -1
        listeners = (Endpoint("PLAINTEXT", "localhost", 9000 + broker_id),)
        registration = Registration(broker_id, self.epoch, previous, listeners, rack)
        registered: bool = self.run(register_broker, self.metadata, registration)
        return registered

    def fence(self, broker_id: int, reason: str = "") -> bool:
        """Fence a broker with its current epoch."""
        epoch = self.metadata.brokers[broker_id].epoch
        done: bool = self.run(fence_broker, self.metadata, broker_id, epoch, reason or f"broker {broker_id} stopped")
        return done

    def shut_down(self, broker_id: int) -> list[Any]:
        """Begin a controlled shutdown."""
        epoch = self.metadata.brokers[broker_id].epoch
        remaining: list[Any] = self.run(begin_controlled_shutdown, self.metadata, broker_id, epoch)
        return remaining

    def change(self, isr: Sequence[int], index: int = 0, /, **other: Any) -> IsrChange:
        """Return the change that the leader of a partition would send."""
        state = self.state(index)
        epochs = {broker_id: broker.epoch for broker_id, broker in self.metadata.brokers.items()}
        members = tuple((each, epochs.get(each, -1)) for each in isr)
        return IsrChange(TOPIC_ID, index, state.leader_epoch, state.partition_epoch, members)._replace(**other)

    def alter(self, isr: Sequence[int], index: int = 0, /, *, sender: int | None = None, **other: Any) -> Any:
        """Change the ISR as the leader, and return the answer for the partition."""
        sender = self.state(index).leader if sender is None else sender
        epoch = self.metadata.brokers[sender].epoch
        change = self.change(isr, index, **other)
        (answer,) = self.run(alter_partitions, self.metadata, sender, epoch, [change])
        return answer

    def state(self, index: int = 0) -> PartitionState:
        """Return the state of a partition."""
        return self.metadata.topics["orders"].states[index]

    def reasons(self, index: int = 0) -> list[str]:
        """Return why a partition changed, the first change first."""
        return [
            record.reason
            for record in self.records
            if index in getattr(record, "states", {}) and record.reason  # type: ignore[union-attr]
        ]
