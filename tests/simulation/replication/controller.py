"""The active controller: one operation at a time, computed from the image and written to ZooKeeper before it counts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.simulation.replication.messages import AlterPartition, ControlledShutdown
from tests.simulation.replication.zookeeper import Batch, ConnectionLost

from ottla import errors
from ottla.machine import Outcome
from ottla.metadata.brokers import begin_controlled_shutdown, fence_broker, register_broker
from ottla.metadata.partitions import alter_partitions
from ottla.metadata.values import Registration

if TYPE_CHECKING:
    from tests.simulation.replication.broker import Broker

Answer = Callable[[Any], None]
Operation = Callable[..., Outcome[Any, Any]]


class Controller:
    """The controller in one epoch."""

    def __init__(self, broker: Broker, epoch: int) -> None:
        self.broker = broker
        self.epoch = epoch
        self.zookeeper = broker.cluster.zookeeper
        self.is_active = True
        self.is_ready = False
        """Whether the image is at the head of the log."""
        self._queue: deque[tuple[Operation, tuple[Any, ...], dict[str, Any], Answer]] = deque()
        self._is_writing = False
        self.catch_up()

    def catch_up(self) -> None:
        """Read the log to its end. Since the epoch has changed, nobody else can write any more."""
        self.is_ready = False
        self.broker.session.call(lambda: len(self.zookeeper.log), self._caught_up)

    def _caught_up(self, answer: Any) -> None:
        if not self.is_active or isinstance(answer, ConnectionLost):
            return  # `catch_up` follows when the connection is back.
        self.broker.replay_to(answer)
        if not self.is_ready and not self._is_writing:
            self.is_ready = True
            self.brokers_changed()
            self._next()

    def resign(self) -> None:
        """Another broker is the controller now, or may be."""
        if self.is_active:
            self.is_active = False
            if self.broker.controller is self:
                self.broker.controller = None
            for *_, answer in self._queue:
                answer(errors.NotController())
            self._queue.clear()

    # ── operations ────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self, operation: Operation, *args: Any, answer: Answer = lambda response: None, **kwargs: Any) -> None:
        """Run ``operation(metadata, *args, **kwargs, now=…)``."""
        self._queue.append((operation, args, kwargs, answer))
        self._next()

    def _next(self) -> None:
        while self._queue and self.is_ready and not self._is_writing and self.is_active:
            operation, args, kwargs, answer = self._queue.popleft()
            broker = self.broker
            try:
                outcome = operation(broker.image, *args, now=broker.now(), **kwargs)
            except errors.KafkaError as error:
                answer(error)
                continue
            if outcome.records:
                self._write(outcome, answer)
            else:
                answer(outcome.response)

    def _write(self, outcome: Outcome[Any, Any], answer: Answer) -> None:
        self._is_writing = True
        self.broker.session.call(
            partial(self.zookeeper.append, outcome.records, self.broker.position, self.epoch),
            partial(self._written, outcome.response, answer),
        )

    def _written(self, response: Any, answer: Answer, result: Any) -> None:
        self._is_writing = False
        if isinstance(result, Batch):
            self.broker.replay_own(result)
            answer(response)
            self._next()
        elif isinstance(result, ConnectionLost):
            # It may have been written. The log will tell.
            answer(errors.NotController())
            if self.is_active:
                self.catch_up()
        else:
            answer(errors.NotController())
            self.resign()

    # ── events ────────────────────────────────────────────────────────────────────────────────────────────────────

    def handle(self, request: AlterPartition | ControlledShutdown, answer: Answer) -> None:
        """Serve a request of a broker."""
        if isinstance(request, AlterPartition):
            self.run(
                alter_partitions,
                request.sender,
                request.broker_epoch,
                [request.change],
                answer=lambda response: answer(response[0] if isinstance(response, list) else response),
            )
        else:
            self.run(begin_controlled_shutdown, request.sender, request.broker_epoch, answer=answer)

    def brokers_changed(self) -> None:
        """Brokers have come or gone: read who is there."""
        self.broker.session.call(self.zookeeper.registrations, self._compare)

    def _compare(self, answer: Any) -> None:
        if isinstance(answer, ConnectionLost) or not self.is_active or not self.is_ready:
            return  # `catch_up` is followed by a new comparison.
        registrations: Mapping[int, Registration] = answer
        brokers = self.broker.image.brokers
        for broker_id, known in list(brokers.items()):
            if broker_id not in registrations and not known.is_fenced:
                self.run(fence_broker, broker_id, known.epoch, f"broker {broker_id} stopped")
        for broker_id, registration in registrations.items():
            if broker_id not in brokers or registration.epoch > brokers[broker_id].epoch:
                self.run(register_broker, registration)
