"""The transactions of a producer: which calls are allowed, the next request to a coordinator, what responses mean.

    init ──> begin ──> (batches, offsets) ──> commit or abort ──> begin ──> ...

There is one request at a time, and the next one follows from the state alone (`next_ask`), so a lost response and a
retriable error are handled alike. The sender owns the batches: it calls `may_send`, and reports failed ones.

With the first version of the protocol, the producer adds a partition before the first batch goes there, and a group
before its offsets; an epoch lasts as long as there is no error. With the second version (KIP-890) brokers do that by
themselves, and every transaction ends with an epoch for the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ottla.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    KafkaError,
    UnknownProducerId,
)
from ottla.producing.idempotence import TransactionalNumbers
from ottla.producing.transaction_states import FOLLOWS, WHERE, State, TransactionMisuse
from ottla.producing.transaction_values import (
    MOVED,
    AddOffsets,
    AddPartitions,
    Answer,
    Ask,
    CommitOffsets,
    EndTransaction,
    FindCoordinator,
    GroupMember,
    InitProducerId,
    Offset,
    Remedy,
    What,
    remedy_of_answer,
    remedy_of_batch,
    with_advice,
)
from ottla.types import Millis, TopicPartition

SECOND = 2
"""The level of transaction.version from which brokers add partitions by themselves."""
FIRST_RETRY_MS: Millis = 20
"""The markers of the last transaction are usually written within this time."""

S = State


@dataclass(slots=True, eq=False)
class Operation:
    """A call of the user that waits for coordinators."""

    name: str
    done: bool = False
    error: KafkaError | None = None


class Transactions:
    """The state of one transactional producer. Callers hold the producer's lock."""

    def __init__(self, transactional_id: str, *, backoff: Callable[[int], Millis]) -> None:
        self.transactional_id = transactional_id
        self.numbers = TransactionalNumbers()
        self.state = S.UNINITIALIZED
        self.error: KafkaError | None = None
        """Why the transaction must be aborted, or the producer closed."""
        self.version = 1
        self._version_seen = 1
        self._backoff = backoff
        self._coordinator: object = None
        self._group_coordinators: dict[str, object] = {}
        self._asked: Ask | None = None
        self._attempts = 0
        self._retry_at: Millis = 0
        self._operation: Operation | None = None
        self._sending_offsets: Operation | None = None
        self._offsets: tuple[dict[TopicPartition, Offset], GroupMember] | None = None
        self._new_partitions: dict[TopicPartition, None] = {}
        self._partitions: set[TopicPartition] = set()
        self._groups: set[str] = set()
        self._started = False
        """The coordinator may know the transaction, so it has to be ended there."""
        self._needs_epoch = False
        self._unknown_there = False
        """The coordinator does not know the producer id, so it would not end the transaction."""

    # Calls of the user.

    def init(self) -> Operation:
        if self._is_under_way("init_transactions"):
            return self._under_way()
        if self.state is S.READY:
            raise TransactionMisuse(
                "init_transactions() was called before. A producer calls it once: begin a transaction"
            )
        self._check("init_transactions", S.UNINITIALIZED)
        self._enter(S.INITIALIZING)
        return self._begin_operation("init_transactions")

    def begin(self) -> None:
        self._check("begin_transaction", S.READY)
        self.version = self._version_seen
        self._enter(S.IN_TRANSACTION)

    def send_offsets(self, offsets: Mapping[TopicPartition, Offset], member: GroupMember) -> Operation:
        """Add the offsets to the transaction; repeating an interrupted call continues it."""
        self._check("send_offsets_to_transaction", S.IN_TRANSACTION)
        waiting = self._offsets
        if waiting is not None and waiting[1].group_id != member.group_id:
            raise TransactionMisuse("the offsets of another group are still being sent: wait for them first")
        self._offsets = ({**(waiting[0] if waiting else {}), **offsets}, member)
        if self._sending_offsets is None:
            self._sending_offsets = Operation("send_offsets_to_transaction")
        return self._sending_offsets

    def commit(self) -> Operation:
        if self._is_under_way("commit_transaction"):
            return self._under_way()
        self._check("commit_transaction", S.IN_TRANSACTION)
        self._enter(S.COMMITTING)
        return self._begin_operation("commit_transaction")

    def abort(self) -> Operation:
        if self._is_under_way("abort_transaction"):
            return self._under_way()
        if self.state is not S.ABORTABLE_ERROR:
            self._check("abort_transaction", S.IN_TRANSACTION)
        self._enter(S.ABORTING)
        self._new_partitions.clear()
        self._drop_offsets(None)
        self._attempts = self._retry_at = 0
        return self._begin_operation("abort_transaction")

    def leave_open(self) -> tuple[int, int, int]:
        """Leave the transaction open for a later end by producer id and epoch, which are returned with the version.

        Only when every batch is acknowledged. `take_over` comes next.
        """
        self._check("prepare", S.IN_TRANSACTION)
        left = (self.numbers.producer_id, self.numbers.producer_epoch, self.version)
        self._forget_transaction()
        self._enter(S.UNINITIALIZED)
        return left

    def take_over(self, transactional_id: str) -> Operation:
        """Become the producer of this id, which may differ from the present one; no transaction may be open."""
        if self.state is not S.UNINITIALIZED:
            self._check("take_over", S.READY)
            self._enter(S.UNINITIALIZED)
        if transactional_id != self.transactional_id:
            self.transactional_id = transactional_id
            self._coordinator = None
        self._needs_epoch = self._unknown_there = False
        return self.init()

    def check_send(self) -> None:
        """Raise an error if no record can be sent now."""
        if self.state is not S.IN_TRANSACTION:
            self._check("send", S.IN_TRANSACTION)

    def _is_under_way(self, name: str) -> bool:
        return self._operation is not None and self._operation.name == name

    def _under_way(self) -> Operation:
        assert self._operation is not None
        return self._operation

    def _begin_operation(self, name: str) -> Operation:
        self._operation = Operation(name)
        return self._operation

    def _check(self, call: str, wanted: State) -> None:
        if self.state is wanted:
            return
        if self.error is not None and self.state in (S.ABORTABLE_ERROR, S.FATAL_ERROR):
            raise self.error
        raise TransactionMisuse(f"{call} cannot be called {WHERE[self.state]}")

    # For the sender.

    def may_send(self, key: TopicPartition) -> bool:
        """Whether a batch may go to a partition; records the request."""
        if key in self._partitions:
            return self.state is not S.FATAL_ERROR
        if self.state not in (S.IN_TRANSACTION, S.COMMITTING):
            return False
        if self.version >= SECOND:
            self._partitions.add(key)
            self._started = True
            return True
        self._new_partitions[key] = None
        return False

    @property
    def drops_unsent(self) -> bool:
        """Whether batches that were never sent have lost their transaction."""
        return self.state in (S.ABORTABLE_ERROR, S.ABORTING)

    @property
    def fatal(self) -> KafkaError | None:
        return self.error if self.state is S.FATAL_ERROR else None

    def batch_failed(self, error: Exception) -> None:
        """A batch of the transaction, or a record for one, was given up."""
        if self.version < SECOND:
            self._needs_epoch = True
        self._fail(error, remedy_of_batch(error))

    # Requests.

    def next_ask(self, *, incomplete: bool, now: Millis) -> Ask | Millis | None:
        """The next request, how long to wait for it, or None. `incomplete`: some batches are unfinished."""
        if self.numbers.broken and self.state in (S.IN_TRANSACTION, S.COMMITTING):
            self._fail(_lost_count(), Remedy.ABORT)
        what = self._what(incomplete) if self._asked is None else None
        if what is None:
            return None
        if now < self._retry_at:
            return self._retry_at - now
        self._asked = Ask(
            what, self._broker_for(what), self.numbers.producer_id, self.numbers.producer_epoch, self.version
        )
        if isinstance(what, CommitOffsets):
            self._started = True
        return self._asked

    def _what(self, incomplete: bool) -> What | None:
        if self.state is S.INITIALIZING:
            identified = self._needs_epoch and self.numbers.identified
            numbers = (self.numbers.producer_id, self.numbers.producer_epoch) if identified else ()
            return self._at_coordinator(InitProducerId(*numbers))
        if self.state in (S.IN_TRANSACTION, S.COMMITTING):
            if self._new_partitions:
                return self._at_coordinator(AddPartitions(tuple(self._new_partitions)))
            if self._offsets is not None:
                return self._what_for_offsets(*self._offsets)
        if incomplete:
            return None
        if self.state is S.COMMITTING or (self.state is S.ABORTING and not self._unknown_there):
            if self._started:
                return self._at_coordinator(EndTransaction(self.state is S.COMMITTING))
        elif self.state is not S.ABORTING:
            return None
        self._ended()
        return self._what(incomplete)

    def _what_for_offsets(self, offsets: Mapping[TopicPartition, Offset], member: GroupMember) -> What:
        if self.version < SECOND and member.group_id not in self._groups:
            return self._at_coordinator(AddOffsets(member.group_id))
        if member.group_id not in self._group_coordinators:
            return FindCoordinator(member.group_id)
        return CommitOffsets(dict(offsets), member)

    def _at_coordinator(self, what: What) -> What:
        return what if self._coordinator is not None else FindCoordinator(None)

    def _broker_for(self, what: What) -> object:
        if isinstance(what, FindCoordinator):
            return None
        return self._group_coordinators[what.member.group_id] if isinstance(what, CommitOffsets) else self._coordinator

    # Responses.

    def answered(self, ask: Ask, answer: Answer, *, now: Millis) -> None:
        """Handle the result of a request."""
        self._asked = None
        if answer.version is not None:
            self._version_seen = answer.version
        if self.state is S.FATAL_ERROR:
            return
        error = answer.error or _worst(ask.what, answer)
        if error is None:
            self._attempts = self._retry_at = 0
            self._succeeded(ask.what, answer)
            return
        remedy = remedy_of_answer(ask.what, error)
        if remedy is Remedy.RETRY:
            self._again(ask.what, answer, error, now=now)
            return
        if isinstance(error, InvalidProducerIdMapping | UnknownProducerId):
            self._needs_epoch = True
            self._unknown_there = self.state is S.ABORTING or isinstance(error, InvalidProducerIdMapping)
        if self.state is not S.ABORTING:
            self._fail(error, remedy)
        elif remedy is Remedy.STOP or (isinstance(ask.what, EndTransaction) and not self._unknown_there):
            # An abort that fails is left to the timeout.
            self._stop(error)

    def _again(self, what: What, answer: Answer, error: KafkaError, *, now: Millis) -> None:
        if isinstance(error, MOVED) and not isinstance(what, FindCoordinator):
            if isinstance(what, CommitOffsets):
                self._group_coordinators.pop(what.member.group_id, None)
            else:
                self._coordinator = None
        if isinstance(what, CommitOffsets) and answer.error is None:
            self._offsets_committed(what, answer)
        self._attempts += 1
        wait = self._backoff(self._attempts)
        if isinstance(error, ConcurrentTransactions) and self._attempts == 1:
            wait = min(wait, FIRST_RETRY_MS)
        self._retry_at = now + wait

    def _succeeded(self, what: What, answer: Answer) -> None:
        if isinstance(what, FindCoordinator):
            self._found(what, answer)
        elif isinstance(what, InitProducerId):
            self.numbers.renew(answer.producer_id, answer.producer_epoch)
            self.version = self._version_seen
            self._needs_epoch = self._unknown_there = False
            self._enter(S.READY)
            self._finish()
        elif isinstance(what, AddPartitions):
            self._partitions.update(what.partitions)
            self._started = True
            for key in what.partitions:
                self._new_partitions.pop(key, None)
        elif isinstance(what, AddOffsets):
            self._groups.add(what.group_id)
            self._started = True
        elif isinstance(what, CommitOffsets):
            self._offsets_committed(what, answer)
        elif self.state in (S.COMMITTING, S.ABORTING):
            if answer.producer_id >= 0 and self.version >= SECOND:
                self.numbers.renew(answer.producer_id, answer.producer_epoch)
                self._needs_epoch = False
            self._ended()

    def _found(self, what: FindCoordinator, answer: Answer) -> None:
        if what.group_id is None:
            self._coordinator = answer.node
        else:
            self._group_coordinators[what.group_id] = answer.node

    def _offsets_committed(self, what: CommitOffsets, answer: Answer) -> None:
        if self._offsets is None:
            return
        left = {
            key: offset
            for key, offset in self._offsets[0].items()
            if what.offsets.get(key) != offset or key in answer.errors
        }
        self._offsets = (left, self._offsets[1])
        if not left:
            self._drop_offsets(None)

    def _drop_offsets(self, error: KafkaError | None) -> None:
        self._offsets = None
        operation, self._sending_offsets = self._sending_offsets, None
        if operation is not None:
            operation.done, operation.error = True, error

    def _ended(self) -> None:
        """The transaction is over; continue, or get another epoch first."""
        self._forget_transaction()
        if self._needs_epoch or self.numbers.broken or self._unknown_there:
            self._needs_epoch = True
            self._enter(S.INITIALIZING)
        else:
            self._enter(S.READY)
            self._finish()

    def _forget_transaction(self) -> None:
        self._partitions.clear()
        self._new_partitions.clear()
        self._groups.clear()
        self._started = False
        self.error = None

    def _fail(self, error: Exception, remedy: Remedy) -> None:
        if remedy is Remedy.STOP:
            self._stop(error)
        elif self.state in (S.IN_TRANSACTION, S.COMMITTING):
            self.error = with_advice(error, remedy)
            self._enter(S.ABORTABLE_ERROR)
            self._new_partitions.clear()
            self._drop_offsets(self.error)
            self._finish(self.error)

    def _stop(self, error: Exception) -> None:
        if self.state is S.FATAL_ERROR:
            return
        self.error = with_advice(error, Remedy.STOP)
        self._enter(S.FATAL_ERROR)
        self._new_partitions.clear()
        self._drop_offsets(self.error)
        self._finish(self.error)

    def _finish(self, error: KafkaError | None = None) -> None:
        operation, self._operation = self._operation, None
        if operation is not None:
            operation.done, operation.error = True, error

    def _enter(self, state: State) -> None:
        if state not in FOLLOWS[self.state]:
            raise RuntimeError(f"{self.state} is not followed by {state}")
        self.state = state


def _worst(what: What, answer: Answer) -> KafkaError | None:
    """The most serious error of several partitions."""
    ranks = [Remedy.STOP, Remedy.ABORT, Remedy.RETRY]
    found = sorted(answer.errors.items(), key=lambda entry: ranks.index(remedy_of_answer(what, entry[1])))
    if not found:
        return None
    key, error = found[0]
    return type(error)(f"partition {key}: {error}")


def _lost_count() -> KafkaError:
    return KafkaError("some sent records were never acknowledged, so it is unknown whether they were written")
