"""What to send next, and what a response means. The shell carries out a `Plan` and reports what happened.

    poll ──> Plan: requests, brokers to connect to, topics to refresh, expired batches, when to call again
    answered, lost ──> finished batches; the others wait in their queues for a retry

A request goes to one broker, with at most one batch per partition; a broker has at most
max.in.flight.requests.per.connection of them. With a limit of one, a partition is muted until its batch has a response.
With more, the sequence numbers of idempotence keep the order. Without either, a retry may overtake, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field

from ottla.errors import (
    AuthenticationError,
    DuplicateSequenceNumber,
    KafkaError,
    MessageTooLarge,
    NetworkException,
    OutOfOrderSequenceNumber,
    RecordListTooLarge,
    StaleMetadataError,
    UnknownServerError,
)
from ottla.producing.accumulator import Accumulator
from ottla.producing.batch import Batch
from ottla.producing.errors import DeliveryTimeout, TransactionAborted
from ottla.producing.idempotence import Idempotence
from ottla.producing.transaction_values import Ask
from ottla.producing.transactions import Transactions
from ottla.producing.values import NO_OFFSET, PartitionResult, View
from ottla.types import BrokerId, Millis, TopicPartition


@dataclass(slots=True, eq=False)
class Request:
    """One produce request."""

    node: BrokerId
    batches: list[Batch]
    sent: Millis


@dataclass(slots=True)
class Finished:
    """A batch and its outcome for the futures."""

    batch: Batch
    error: Exception | None = None
    base_offset: int = NO_OFFSET
    log_append_time: Millis = -1


@dataclass(slots=True)
class Plan:
    """What the shell must do."""

    requests: list[Request] = field(default_factory=list)
    finished: list[Finished] = field(default_factory=list)
    connect: set[BrokerId] = field(default_factory=set)
    refresh: set[str] = field(default_factory=set)
    identify: bool = False
    """A producer id is needed."""
    ask: Ask | None = None
    """A request to a transaction coordinator."""
    wait: Millis | None = None
    """When to call again even if nothing happens."""


class Sender:
    """The machine between the accumulator and the brokers."""

    def __init__(
        self,
        accumulator: Accumulator,
        *,
        idempotence: Idempotence | None,
        retries: int,
        max_in_flight: int,
        max_request_size: int,
        availability_timeout_ms: Millis = 0,
        transactions: Transactions | None = None,
    ) -> None:
        self.accumulator = accumulator
        self.transactions = transactions
        self.idempotence = idempotence
        self.retries = retries
        self.max_in_flight = max_in_flight
        self.max_request_size = max_request_size
        self.availability_timeout_ms = availability_timeout_ms
        self.fatal: KafkaError | None = None
        self.trouble: Exception | None = None
        """Why brokers may not answer, for the error of records that expire."""
        self.retried = 0
        self._in_flight: dict[BrokerId, list[Request]] = {}
        self._stale: set[str] = set()
        self._stuck_since: dict[BrokerId, Millis] = {}

    @property
    def requests_in_flight(self) -> int:
        return sum(map(len, self._in_flight.values()))

    @property
    def is_idle(self) -> bool:
        """Whether `poll` has nothing to do before a record is appended or one of its timers is due."""
        return self.transactions is None and self.fatal is None and not self._stale and not self.accumulator.has_waiting

    def poll(self, view: View, connected: Container[BrokerId], *, now: Millis) -> Plan:
        """Return what to do now."""
        plan = Plan()
        self._expire(plan, view, now=now)
        if self.transactions is not None:
            self._drop_unsent(self.transactions, plan)
        if self.fatal is not None:
            self._give_up(plan, self.fatal)
        if self.idempotence is not None:
            self.idempotence.settle()
        ready = self.accumulator.ready(view, now=now)
        if self.idempotence is not None and not self.idempotence.identified:
            plan.identify = self.transactions is None
        else:
            for node in ready.nodes:
                self._send_to(node, plan, view, connected, now=now)
        plan.refresh = ready.leaderless | self._stale
        self._stale = set()
        expiry = self.accumulator.next_expiry(now=now)
        plan.wait = min((wait for wait in (ready.wait, expiry) if wait is not None), default=None)
        if self.transactions is not None:
            self._ask(self.transactions, plan, now=now)
        return plan

    def _drop_unsent(self, transactions: Transactions, plan: Plan) -> None:
        """Fail the records that were never sent with their transaction; sent ones have to get their outcome first."""
        self.fatal = transactions.fatal or self.fatal
        if transactions.drops_unsent:
            error = transactions.error or TransactionAborted()
            plan.finished += [self._finish(Finished(batch, error)) for batch in self.accumulator.drop_unsent()]

    def _ask(self, transactions: Transactions, plan: Plan, *, now: Millis) -> None:
        ask = transactions.next_ask(incomplete=bool(self.accumulator.incomplete), now=now)
        if isinstance(ask, int):
            plan.wait = ask if plan.wait is None else min(plan.wait, ask)
        else:
            plan.ask = ask

    def _send_to(self, node: BrokerId, plan: Plan, view: View, connected: Container[BrokerId], *, now: Millis) -> None:
        if node not in connected:
            plan.connect.add(node)
            self._stuck_since.setdefault(node, now)
            return
        in_flight = self._in_flight.setdefault(node, [])
        while len(in_flight) < self.max_in_flight:
            batches = self.accumulator.drain(node, view, self.max_request_size, self._must_wait, now=now)
            if not batches:
                break
            self._stuck_since.pop(node, None)
            request = Request(node, batches, now)
            in_flight.append(request)
            plan.requests.append(request)
            self._note_sent(batches)
            if not self.accumulator.has_full(batches):
                return
        else:
            self._stuck_since.setdefault(node, now)

    def _must_wait(self, batch: Batch) -> bool:
        if self.transactions is not None and not self.transactions.may_send(batch.topic_partition):
            return True
        return self.idempotence is not None and self.idempotence.must_wait(batch)

    def _note_sent(self, batches: list[Batch]) -> None:
        for batch in batches:
            batch.was_sent = batch.in_flight = True
            if self.idempotence is not None:
                self.idempotence.sending(batch)
            if self.max_in_flight == 1:
                self.accumulator.mute(batch.topic_partition)

    def stuck(self, node: BrokerId, *, now: Millis) -> bool:
        """Whether a broker has accepted nothing for so long that other partitions should be preferred."""
        since = self._stuck_since.get(node)
        return bool(self.availability_timeout_ms) and since is not None and now - since > self.availability_timeout_ms

    # Responses.

    def answered(
        self, request: Request, results: Mapping[TopicPartition, PartitionResult], *, now: Millis
    ) -> list[Finished]:
        """Handle the response to a request; returns the batches that are finished now."""
        self._landed(request)
        finished: list[Finished] = []
        for batch in request.batches:
            result = results.get(batch.topic_partition, _NO_ANSWER)
            outcome = self._outcome(batch, result, now=now)
            if outcome is not None:
                finished.append(self._finish(outcome))
        return finished

    def lost(self, request: Request, error: KafkaError, *, now: Millis) -> list[Finished]:
        """The connection broke or no response came: it is unknown what happened to the request."""
        result = PartitionResult(error)
        return self.answered(request, {batch.topic_partition: result for batch in request.batches}, now=now)

    def unanswered(self, request: Request, *, now: Millis) -> list[Finished]:
        """A request with acks=0 is done when it is sent."""
        result = PartitionResult()
        return self.answered(request, {batch.topic_partition: result for batch in request.batches}, now=now)

    def _landed(self, request: Request) -> None:
        in_flight = self._in_flight.get(request.node, [])
        if request in in_flight:
            in_flight.remove(request)
        for batch in request.batches:
            batch.in_flight = False
            if self.max_in_flight == 1:
                self.accumulator.unmute(batch.topic_partition)

    def _outcome(self, batch: Batch, result: PartitionResult, *, now: Millis) -> Finished | None:
        error = result.error
        if error is None or self._is_duplicate(batch, error):
            # A duplicate was written before, but its offset is no longer known.
            base_offset = result.base_offset if error is None else NO_OFFSET
            if self.idempotence is not None:
                self.idempotence.completed(batch, base_offset + batch.count - 1 if base_offset >= 0 else -1)
            return None if batch.done else Finished(batch, None, base_offset, result.log_append_time)
        if isinstance(error, StaleMetadataError | NetworkException):
            self._stale.add(batch.topic_partition.topic)
        if batch.done:
            return None
        if isinstance(error, MessageTooLarge | RecordListTooLarge) and batch.count > 1:
            self._split(batch, now=now)
            return None
        if self._can_retry(batch, error, result.log_start_offset, now=now):
            self.retried += batch.count
            self.accumulator.again(batch, now=now)
            return None
        return self._failed(batch, _with_advice(error, batch), outcome_known=not isinstance(error, _UNKNOWN))

    def _is_duplicate(self, batch: Batch, error: KafkaError) -> bool:
        if isinstance(error, OutOfOrderSequenceNumber) and self.idempotence is not None:
            return self.idempotence.surely_written(batch)
        return isinstance(error, DuplicateSequenceNumber)

    def _can_retry(self, batch: Batch, error: KafkaError, log_start_offset: int, *, now: Millis) -> bool:
        if batch.attempts >= self.retries or batch.age(now=now) >= self.accumulator.delivery_timeout_ms:
            return False
        if self.idempotence is None:
            return error.retriable
        return self.idempotence.can_retry(batch, error, log_start_offset)

    def _failed(self, batch: Batch, error: Exception, *, outcome_known: bool) -> Finished:
        if self.idempotence is not None:
            self.idempotence.failed(batch, outcome_known=outcome_known)
        if self.transactions is not None:
            self.transactions.batch_failed(error)
        return Finished(batch, error)

    def _finish(self, outcome: Finished) -> Finished:
        self.accumulator.finished(outcome.batch)
        return outcome

    def _split(self, batch: Batch, *, now: Millis) -> None:
        """Split into halves, which are sent at once and keep the numbers; they are split again if necessary."""
        records = batch.records()
        middle = len(records) // 2
        parts = [self.accumulator.rebuilt(batch, half) for half in (records[:middle], records[middle:])]
        if self.idempotence is not None:
            self.idempotence.split(batch, parts)
        batch.split(parts)
        self.accumulator.replace(batch, parts)

    # Giving up.

    def _expire(self, plan: Plan, view: View, *, now: Millis) -> None:
        for batch in self.accumulator.expired(now=now):
            known = view.led.get(batch.topic_partition.topic) is not None
            reason = "is its broker running?" if known else "no broker knows the topic now, was it deleted?"
            if self.trouble is not None:
                reason = f"{self.trouble}."
            error = DeliveryTimeout(
                f"{batch.count} record(s) for {batch.topic_partition} were not acknowledged within "
                f"{self.accumulator.delivery_timeout_ms / 1000:g} s ({_how_far(batch)}): {reason} "
                "delivery.timeout.ms sets this time"
            )
            plan.finished.append(self._finish(self._failed(batch, error, outcome_known=not batch.was_sent)))

    def rejected(
        self, error: KafkaError, among: Callable[[TopicPartition], bool] = lambda partition: True, *, now: Millis
    ) -> list[Finished]:
        """A broker rejected this client: fail what waits for these partitions, since retries would be rejected too."""
        return [
            self._finish(self._failed(batch, _with_advice(error, batch), outcome_known=not batch.was_sent))
            for batch in self.accumulator.drop_all(among)
        ]

    def _give_up(self, plan: Plan, error: KafkaError) -> None:
        for batch in self.accumulator.drop_all():
            plan.finished.append(self._finish(Finished(batch, error)))

    def abandon(self, error: Exception) -> list[Finished]:
        """The producer is closed and waits no longer: fail everything, even what is in flight."""
        self.accumulator.drop_all()
        return [self._finish(Finished(batch, error)) for batch in list(self.accumulator.incomplete)]


#: After these it is unknown whether the broker has written the records.
_UNKNOWN = (NetworkException, AuthenticationError)
_NO_ANSWER = PartitionResult(UnknownServerError("the broker left the partition out of its response"))


def _how_far(batch: Batch) -> str:
    if not batch.was_sent:
        return "they were never sent"
    return f"sent {batch.attempts + 1} time(s)"


def _with_advice(error: KafkaError, batch: Batch) -> KafkaError:
    """The error with the partition and what to change in its message."""
    if isinstance(error, MessageTooLarge | RecordListTooLarge):
        return type(error)(
            f"a record of {batch.size:,} bytes is larger than topic {batch.topic_partition.topic} accepts: raise "
            "max.message.bytes of the topic, or compress"
        )
    return type(error)(f"partition {batch.topic_partition}: {error}")
