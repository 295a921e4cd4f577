"""Transactions with random calls and random results: no state is a dead end, and nothing is sent at a wrong time."""

from __future__ import annotations

import random

import pytest
from producer_context import BACKOFF, P0, P1, P2, Context

from ottla import errors
from ottla.errors import KafkaError
from ottla.producing.sender import Request
from ottla.producing.transaction_states import State, TransactionMisuse
from ottla.producing.transaction_values import Answer, Ask, CommitOffsets, EndTransaction, GroupMember, Offset
from ottla.producing.transactions import Operation, Transactions

PASSING: list[type[KafkaError]] = [
    errors.ConcurrentTransactions,
    errors.CoordinatorLoadInProgress,
    errors.NotCoordinator,
    errors.CoordinatorNotAvailable,
    errors.NetworkException,
]
ABORTING: list[type[KafkaError]] = [
    errors.TransactionAbortable,
    errors.InvalidProducerIdMapping,
    errors.UnknownProducerId,
    errors.IllegalGeneration,
]
OF_BATCHES: list[type[KafkaError]] = [
    errors.NotLeaderOrFollower,
    errors.NetworkException,
    errors.ConcurrentTransactions,
    errors.OutOfOrderSequenceNumber,
    errors.UnknownProducerId,
    errors.InvalidRecord,
    errors.InvalidProducerEpoch,
]


class World(Context):
    """A producer whose coordinators and brokers respond at random."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.chance = random.Random(seed)
        self.version = self.chance.choice((1, 2))
        self.trouble = 0.3
        self.machine = Transactions("x", backoff=lambda attempt: BACKOFF)
        self.sender.transactions, self.sender.idempotence = self.machine, self.machine.numbers
        self.ask: Ask | None = None
        self.requests: list[Request] = []
        self.epoch = -1
        self.operations: list[Operation] = [self.machine.init()]
        self.commits = 0

    def user(self) -> None:
        machine = self.machine
        calls = [machine.begin, self.send, self.send, self.offsets, machine.commit, machine.abort]
        try:
            done = self.chance.choice(calls)()
        except (TransactionMisuse, KafkaError):
            return
        if isinstance(done, Operation):
            self.operations.append(done)

    def send(self) -> None:
        self.machine.check_send()
        self.batch(self.chance.choice((P0, P1, P2)))

    def offsets(self) -> Operation:
        return self.machine.send_offsets({P0: Offset(self.now)}, GroupMember("g"))

    def work(self) -> None:
        """One turn of the loop, and its responses."""
        plan = self.poll()
        assert not plan.identify
        for request in plan.requests:
            assert self.machine.state not in (State.READY, State.UNINITIALIZED, State.INITIALIZING)
            assert {batch.producer_epoch for batch in request.batches} == {self.epoch}
        self.requests += plan.requests
        if plan.ask is not None:
            assert self.ask is None, "one request at a time"
            self.ask = plan.ask
            self.check(plan.ask)
        if self.requests and self.chance.random() < 0.7:
            self.answer_batch(self.requests.pop(self.chance.randrange(len(self.requests))))
        if self.ask is not None and self.chance.random() < 0.7:
            ask, self.ask = self.ask, None
            self.machine.answered(ask, self.answer_to(ask), now=self.now)
        self.sleep(self.chance.choice((1, 10, BACKOFF)))

    def check(self, ask: Ask) -> None:
        if isinstance(ask.what, EndTransaction):
            assert not self.accumulator.incomplete, "every batch has its outcome before the end"
            assert self.machine.state is (State.COMMITTING if ask.what.commit else State.ABORTING)
            self.commits += ask.what.commit
        if isinstance(ask.what, CommitOffsets):
            assert self.machine.state in (State.IN_TRANSACTION, State.COMMITTING)

    def answer_batch(self, request: Request) -> None:
        if self.chance.random() < self.trouble:
            self.reject(request, self.chance.choice(OF_BATCHES)(), self.chance.choice((-1, 0, 5)))
        else:
            self.acknowledge(request, self.now)

    def answer_to(self, ask: Ask) -> Answer:
        kind = self.chance.random()
        if kind < self.trouble:
            return Answer(self.chance.choice(PASSING)())
        initializing = self.machine.state is State.INITIALIZING
        if kind < self.trouble * 1.2 and not initializing:
            return Answer(self.chance.choice(ABORTING)())
        fresh = initializing or (self.version == 2 and isinstance(ask.what, EndTransaction))
        self.epoch += fresh and ask.broker is not None
        return Answer(node="n", producer_id=9 if fresh else -1, producer_epoch=self.epoch, version=self.version)

    def calm_down(self) -> None:
        """Without further faults, everything in progress ends, and another transaction is possible."""
        self.trouble = 0.0
        for _ in range(200):
            self.work()
            if self.machine.state is State.ABORTABLE_ERROR:
                self.operations.append(self.machine.abort())
        if self.machine.state is State.READY:
            self.machine.begin()
            self.send()
        if self.machine.state is State.IN_TRANSACTION:
            self.operations.append(self.machine.commit())
            for _ in range(50):
                self.work()


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_no_state_is_a_dead_end(first: int) -> None:
    ended = 0
    for seed in range(first, first + 20):
        world = World(seed)
        for _ in range(150):
            world.user()
            world.work()
        world.calm_down()
        assert all(operation.done for operation in world.operations), seed
        assert world.machine.state in (State.READY, State.FATAL_ERROR), seed
        assert not world.accumulator.incomplete, seed
        if world.machine.state is State.READY:
            assert world.operations[-1].error is None, seed
            ended += world.commits > 0
    assert ended, "some of them commit"
