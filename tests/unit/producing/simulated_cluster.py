"""A producer's machines against a simulated cluster, in virtual time and from a seed.

The cluster keeps one log per partition and the sequence numbers of producers as Kafka does. Connections break with
requests half done, brokers go away and return, leaders move, brokers reject for a while, and responses get lost.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from zlib import crc32

from ottla.errors import (
    InvalidProducerEpoch,
    InvalidRecord,
    KafkaError,
    MessageTooLarge,
    NetworkException,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
    RequestTimedOut,
)
from ottla.producing.accumulator import Accumulator, Appended
from ottla.producing.batch import Batch
from ottla.producing.buffer_pool import Ticket
from ottla.producing.idempotence import Idempotence
from ottla.producing.sender import Finished, Request, Sender
from ottla.producing.values import PartitionResult, View
from ottla.types import TopicPartition

DELIVERY_TIMEOUT = 3_000
REQUEST_TIMEOUT = 400
REMEMBERED = 5


@dataclass
class PlayedLog:
    """A partition: its values, and what it remembers of producers."""

    values: list[bytes] = field(default_factory=list)
    producers: dict[int, tuple[int, list[tuple[int, int, int]]]] = field(default_factory=dict)

    def append(self, sent: Sent) -> int:
        """Return the base offset; raises as Kafka would."""
        if sent.producer_id < 0:
            return self._write(sent)
        epoch, batches = self.producers.get(sent.producer_id, (-1, []))
        last = sent.sequence + len(sent.values) - 1
        if sent.epoch < epoch:
            raise InvalidProducerEpoch
        if sent.epoch == epoch:
            for first, end, offset in batches:
                if (first, end) == (sent.sequence, last):
                    return offset
            if batches and sent.sequence != batches[-1][1] + 1:
                raise OutOfOrderSequenceNumber
        elif sent.sequence != 0 and epoch != -1:
            raise OutOfOrderSequenceNumber
        kept = batches if sent.epoch == epoch else []
        offset = self._write(sent)
        self.producers[sent.producer_id] = (sent.epoch, [*kept, (sent.sequence, last, offset)][-REMEMBERED:])
        return offset

    def _write(self, sent: Sent) -> int:
        self.values += sent.values
        return len(self.values) - len(sent.values)


@dataclass
class Sent:
    """What is sent for one batch."""

    key: TopicPartition
    values: list[bytes]
    producer_id: int
    epoch: int
    sequence: int


@dataclass(eq=False)
class Flight:
    """A request on a connection."""

    request: Request
    batches: list[Sent]
    generation: int


class Simulation:
    """One run. `trouble` is the probability of a fault in each step of a request."""

    def __init__(
        self,
        seed: int,
        *,
        trouble: float,
        idempotent: bool = True,
        in_flight: int = 5,
        max_batch: int = 1 << 30,
        refusals: float = 0.0,
        buffer_memory: int = 1_000_000,
    ) -> None:
        self.dice = random.Random(seed)
        self.trouble = trouble
        self.now = 0
        self.max_batch = max_batch
        self.refusals = refusals
        self.partitions = [TopicPartition("t", number) for number in range(3)]
        self.nodes = [0, 1]
        self.logs = {key: PlayedLog() for key in self.partitions}
        self.leaders = {key: self.dice.choice(self.nodes) for key in self.partitions}
        self.view = View(dict(self.leaders))
        self.connected = {0, 1}
        self.generations = {0: 0, 1: 0}
        self.down: set[int] = set()
        self.accumulator = Accumulator(
            batch_size=256,
            linger_ms=5,
            buffer_memory=buffer_memory,
            delivery_timeout_ms=DELIVERY_TIMEOUT,
            backoff=lambda attempt: min(20 * 2 ** (attempt - 1), 200),
        )
        self.idempotence = Idempotence() if idempotent else None
        self.sender = Sender(
            self.accumulator,
            idempotence=self.idempotence,
            retries=2**31 - 1,
            max_in_flight=in_flight,
            max_request_size=2_000,
        )
        self.sent: dict[TopicPartition, list[bytes]] = {key: [] for key in self.partitions}
        self.born: dict[bytes, int] = {}
        self.outcomes: dict[bytes, Exception | int] = {}
        self.finished_at: dict[bytes, int] = {}
        self.waiting: list[tuple[Ticket, TopicPartition, bytes]] = []
        self.contents: dict[int, list[bytes]] = {}
        self.keep: list[Batch] = []
        self._flying: dict[int, list[Flight]] = {0: [], 1: []}
        self._arrived: set[Flight] = set()
        self._answer_at: dict[int, int] = {}
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._timer: int | None = None
        self._refreshing = False
        self._identifying = False
        self._connecting: set[int] = set()

    # Time.

    def at(self, delay: int, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now + delay, self._count, action))

    def run(self, until: int) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, _, action = heapq.heappop(self._events)
            action()
        self.now = until

    # The producer.

    def send(self, key: TopicPartition, value: bytes) -> None:
        self.sent[key].append(value)
        self.born[value] = self.now
        self._append(key, value, None)
        self.pump()

    def _append(self, key: TopicPartition, value: bytes, ticket: Ticket | None) -> None:
        outcome = self.accumulator.append(key, self.now, None, value, (), now=self.now, ticket=ticket)
        if isinstance(outcome, Appended):
            self.contents.setdefault(id(outcome.batch), []).append(value)
            self.keep.append(outcome.batch)  # an id is reused once its batch is gone
            self.born[value] = outcome.batch.created
        else:
            self.waiting.append((outcome, key, value))

    def pump(self) -> None:
        plan = self.sender.poll(self.view, self.connected, now=self.now)
        self._tell(plan.finished)
        for request in plan.requests:
            self._transmit(request)
        for node in plan.connect - self._connecting:
            self._connecting.add(node)
            self.at(self.dice.randint(1, 60), lambda node=node: self._connect(node))
        if plan.refresh and not self._refreshing:
            self._refreshing = True
            self.at(self.dice.randint(1, 60), self._refresh)
        if plan.identify and not self._identifying:
            self._identifying = True
            self.at(self.dice.randint(1, 30), self._identify)
        if plan.wait is not None and (self._timer is None or self._timer > self.now + plan.wait):
            self._timer = self.now + max(plan.wait, 1)
            self.at(max(plan.wait, 1), self._timer_fired)
        self._grant()

    def _timer_fired(self) -> None:
        self._timer = None
        self.pump()

    def _grant(self) -> None:
        if not self.accumulator.take_granted():
            return
        waiting, self.waiting = self.waiting, []
        for ticket, key, value in waiting:
            if ticket.granted:
                self._append(key, value, ticket)
            else:
                self.waiting.append((ticket, key, value))
        self.at(0, self.pump)

    def _connect(self, node: int) -> None:
        self._connecting.discard(node)
        if node not in self.down:
            self.connected.add(node)
        self.pump()

    def _refresh(self) -> None:
        self._refreshing = False
        self.view = View(dict(self.leaders))
        self.pump()

    def _identify(self) -> None:
        self._identifying = False
        assert self.idempotence is not None
        self.idempotence.identify(1_000 + self._count, 0)
        self.pump()

    def _tell(self, finished: list[Finished]) -> None:
        for outcome in finished:
            batch = outcome.batch
            values = self._values_of(batch)
            assert len(values) == batch.count
            for index, value in enumerate(values):
                assert value not in self.outcomes, f"{value!r} has two outcomes"
                self.outcomes[value] = outcome.error or (
                    outcome.base_offset + index if outcome.base_offset >= 0 else -1
                )
                self.finished_at[value] = self.now
            batch.finish(outcome.base_offset, outcome.log_append_time, outcome.error)

    def _values_of(self, batch: object) -> list[bytes]:
        """The contents of a batch: a part of a split batch knows it from its parent."""
        if id(batch) not in self.contents:
            for parent in self.keep:
                first = 0
                for _, part in parent.parts or ():
                    if id(part) not in self.contents:
                        self.contents[id(part)] = self._values_of(parent)[first : first + part.count]
                        self.keep.append(part)
                    first += part.count
        return self.contents[id(batch)]

    # The network.

    def _transmit(self, request: Request) -> None:
        batches = []
        for batch in request.batches:
            numbers = (batch.producer_id, batch.producer_epoch, batch.base_sequence)
            batches.append(Sent(batch.topic_partition, list(self._values_of(batch)), *numbers))
        flight = Flight(request, batches, self.generations[request.node])
        self._flying[request.node].append(flight)
        self.at(self.dice.randint(1, 20), lambda: self._arrive(request.node))
        if self._goes_wrong():
            self.at(self.dice.randint(1, 40), lambda: self._cut(request.node))

    def _goes_wrong(self) -> bool:
        return self.dice.random() < self.trouble

    def _arrive(self, node: int) -> None:
        """The first request on the connection reaches its broker, which responds in order."""
        waiting = [flight for flight in self._flying[node] if flight not in self._arrived]
        if not waiting or node in self.down:
            return
        flight = waiting[0]
        self._arrived.add(flight)
        results = {sent.key: self._written(node, sent) for sent in flight.batches}
        if self._goes_wrong():
            # The response never comes: the client gives up the connection.
            self.at(REQUEST_TIMEOUT, lambda: self._time_out(flight))
        else:
            self._answer_at[node] = max(self._answer_at.get(node, 0), self.now + self.dice.randint(1, 20))
            self.at(self._answer_at[node] - self.now, lambda: self._answer(flight, results))

    def _written(self, node: int, sent: Sent) -> PartitionResult:
        if self.leaders[sent.key] != node:
            return PartitionResult(NotLeaderOrFollower())
        if self._goes_wrong():
            return PartitionResult(self.dice.choice([NotEnoughReplicas, RequestTimedOut])())
        if any(crc32(value) % 1_000 < 1_000 * self.refusals for value in sent.values):
            return PartitionResult(InvalidRecord())
        if sum(map(len, sent.values)) > self.max_batch:
            return PartitionResult(MessageTooLarge())
        try:
            offset = self.logs[sent.key].append(sent)
        except KafkaError as error:
            return PartitionResult(error, log_start_offset=0)
        if self._goes_wrong():
            return PartitionResult(NotEnoughReplicasAfterAppend())
        return PartitionResult(None, offset)

    def _answer(self, flight: Flight, results: dict[TopicPartition, PartitionResult]) -> None:
        flying = self._flying[flight.request.node]
        # Responses come in order: nothing follows a lost one.
        if flying and flying[0] is flight:
            flying.remove(flight)
            self._tell(self.sender.answered(flight.request, results, now=self.now))
            self.pump()

    def _time_out(self, flight: Flight) -> None:
        if flight in self._flying[flight.request.node]:
            self._cut(flight.request.node)

    def _cut(self, node: int) -> None:
        """The connection breaks; what has not arrived may still arrive in order, or never."""
        if node not in self.connected:
            return
        self.connected.discard(node)
        self.generations[node] += 1
        flying, self._flying[node] = self._flying[node], []
        still = self.dice.randint(0, len(flying))
        for number, flight in enumerate(flying):
            if number < still and flight not in self._arrived and node not in self.down:
                for sent in flight.batches:
                    self._written(node, sent)
            self._tell(self.sender.lost(flight.request, NetworkException("cut"), now=self.now))
        self.pump()

    # Faults.

    def move_leaders(self) -> None:
        for key in self.partitions:
            self.leaders[key] = self.dice.choice(self.nodes)

    def take_down(self, node: int, how_long: int) -> None:
        self.down.add(node)
        self._cut(node)
        self.at(how_long, lambda: self.down.discard(node))

    # Final checks.

    def check(self, *, ordered: bool = True, once: bool = True) -> None:
        for key in self.partitions:
            written = self.logs[key].values
            if once:
                assert len(written) == len(set(written)), f"{key} has a record twice"
            acknowledged = [value for value in self.sent[key] if not isinstance(self.outcomes[value], Exception)]
            missing = set(acknowledged) - set(written)
            assert not missing, f"{key} lost {missing}"
            for value in acknowledged:
                offset = self.outcomes[value]
                assert offset == -1 or written[offset] == value
            if ordered:
                place = {value: number for number, value in enumerate(self.sent[key])}
                order = [place[value] for value in written]
                assert order == sorted(order), f"{key} is out of order"
        for value, finished in self.finished_at.items():
            assert finished - self.born[value] <= DELIVERY_TIMEOUT + 5
        assert not self.accumulator.incomplete
        assert self.accumulator.pool.available == self.accumulator.pool.total
