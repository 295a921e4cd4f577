"""A producer's machines in virtual time, with helpers for tests."""

from __future__ import annotations

from ottla.errors import KafkaError
from ottla.producing.accumulator import Accumulator, Appended
from ottla.producing.batch import Batch
from ottla.producing.buffer_pool import Ticket
from ottla.producing.idempotence import Idempotence
from ottla.producing.sender import Finished, Plan, Request, Sender
from ottla.producing.values import PartitionResult, View
from ottla.types import TopicPartition

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))
LINGER, DELIVERY_TIMEOUT, BACKOFF = 5, 1_000, 100


class Context:
    """One broker leads P0 and P1, another P2, unless told otherwise."""

    def __init__(
        self,
        *,
        idempotent: bool = True,
        in_flight: int = 5,
        retries: int = 2**31 - 1,
        buffer_memory: int = 100_000,
        batch_size: int = 200,
        max_request_size: int = 10_000,
        availability_timeout_ms: int = 0,
    ) -> None:
        self.now = 0
        self.accumulator = Accumulator(
            batch_size=batch_size,
            linger_ms=LINGER,
            buffer_memory=buffer_memory,
            delivery_timeout_ms=DELIVERY_TIMEOUT,
            backoff=lambda attempt: BACKOFF * 2 ** (attempt - 1),
        )
        self.idempotence = Idempotence() if idempotent else None
        if self.idempotence is not None:
            self.idempotence.identify(9, 0)
        self.sender = Sender(
            self.accumulator,
            idempotence=self.idempotence,
            retries=retries,
            max_in_flight=in_flight,
            max_request_size=max_request_size,
            availability_timeout_ms=availability_timeout_ms,
        )
        self.view = View({P0: 0, P1: 0, P2: 1})
        self.connected = {0, 1}

    def sleep(self, milliseconds: int) -> None:
        self.now += milliseconds

    def append(self, key: TopicPartition = P0, size: int = 10, ticket: Ticket | None = None) -> Appended | Ticket:
        return self.accumulator.append(key, self.now, None, b"v" * size, (), now=self.now, ticket=ticket)

    def batch(self, key: TopicPartition = P0, size: int = 10) -> Batch:
        """A full batch of one record: the next record goes to another one."""
        outcome = self.append(key, size)
        assert isinstance(outcome, Appended)
        outcome.batch.close()
        return outcome.batch

    def batches(self, count: int, key: TopicPartition = P0) -> list[Batch]:
        return [self.batch(key) for _ in range(count)]

    def poll(self) -> Plan:
        return self.sender.poll(self.view, self.connected, now=self.now)

    def request(self) -> Request:
        """The only request that is sent now."""
        (request,) = self.poll().requests
        return request

    def acknowledge(self, request: Request, base_offset: int = 0) -> list[Finished]:
        results = {batch.topic_partition: PartitionResult(None, base_offset) for batch in request.batches}
        return self.sender.answered(request, results, now=self.now)

    def reject(self, request: Request, error: KafkaError, log_start_offset: int = -1) -> list[Finished]:
        result = PartitionResult(error, log_start_offset=log_start_offset)
        return self.sender.answered(request, {each.topic_partition: result for each in request.batches}, now=self.now)

    def lose(self, request: Request, error: KafkaError) -> list[Finished]:
        return self.sender.lost(request, error, now=self.now)

    def first_acknowledged(self, key: TopicPartition = P0) -> None:
        """One batch is written: from now on the broker knows the producer."""
        self.batch(key)
        self.acknowledge(self.request())


def numbers(batch: Batch) -> tuple[int, int, int]:
    return batch.producer_id, batch.producer_epoch, batch.base_sequence
