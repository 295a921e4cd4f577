"""The transaction coordinator of one partition of ``__transaction_state``. A pure state machine.

Each operation handles one transactional id. It returns the record of the next state, and the response. The markers that
follow a decision are derived from the state, so a live request and a restart take the same path:
:meth:`TransactionCoordinator.unfinished` lists the missing markers. The shell writes them and calls
:meth:`TransactionCoordinator.markers_written`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator
from typing import TypeVar

from ottla import errors
from ottla.machine import Machine, Outcome, Timer
from ottla.transactions import messages as m
from ottla.transactions.config import TransactionConfig
from ottla.transactions.records import LONGEST_ID, TransactionRecord
from ottla.transactions.transaction import LAST_EPOCH, Transaction
from ottla.transactions.transitions import PREPARED, RESTING, State
from ottla.types import NO_PRODUCER_ID, Millis

ABORT_TIMED_OUT = ("abort-timed-out",)
EXPIRE = ("expire",)
#: The most records per firing of a timer. The rest follows immediately, in another batch.
AT_ONCE = 500
Record = TransactionRecord
Response = TypeVar("Response")


class TransactionCoordinator(Machine[TransactionRecord]):
    """All transactional ids of one shard."""

    def __init__(self, config: TransactionConfig) -> None:
        self.config = config
        self.transactions: dict[str, Transaction] = {}
        self._ongoing: dict[str, None] = {}
        """Transactions that can time out, by start time."""
        self._prepared: dict[str, None] = {}

    # ── producers ─────────────────────────────────────────────────────────────────────────────────────────────────

    def needs_producer_id(self, transactional_id: str) -> bool:
        """Return whether the next request for this id may need a new producer id. Pass one as the spare."""
        known = self.transactions.get(transactional_id)
        return known is None or known.is_exhausted

    def init_producer_id(self, request: m.InitRequest, *, now: Millis) -> Outcome[Record, m.InitResponse]:
        """InitProducerId: return a new epoch, which fences the earlier producers of this id."""
        try:
            self._check_init(request)
            known = self.transactions.get(request.transactional_id)
            if known is None:
                spare = _spare(request.spare_producer_id)
                known = Transaction(transactional_id=request.transactional_id, producer_id=spare, timeout=0)
            self._check_expected(request, known)
            if known.state is State.ONGOING:
                # No producer gets the epoch of the fence. The client retries and gets the next one.
                return _outcome(known.fenced(now=now), _init_error(errors.ConcurrentTransactions))
            if known.state in PREPARED:
                raise errors.ConcurrentTransactions("The last transaction is not complete.")
            following = _initialised(known, request, now=now)
        except errors.KafkaError as error:
            return Outcome((), _init_error(type(error)))
        return _outcome(following, m.InitResponse(following.producer_id, following.producer_epoch))

    def _check_init(self, request: m.InitRequest) -> None:
        if not request.transactional_id or len(request.transactional_id.encode(errors="replace")) > LONGEST_ID:
            raise errors.InvalidRequest("A transactional id must have 1 to 32767 bytes.")
        if not 0 < request.timeout <= self.config.transaction_max_timeout_ms:
            longest = self.config.transaction_max_timeout_ms
            raise errors.InvalidTransactionTimeout(f"The timeout must be between 1 and {longest} ms.")

    def _check_expected(self, request: m.InitRequest, known: Transaction) -> None:
        """Fence a producer that no longer owns its producer id (KIP-360)."""
        if request.producer_id == NO_PRODUCER_ID or known.producer_epoch == m.NO_EPOCH:
            return
        repeated = request.producer_id == known.previous_producer_id and request.producer_epoch >= LAST_EPOCH
        if request.producer_id != known.producer_id and not repeated:
            raise errors.ProducerFenced("Another producer now has this transactional id.")

    # ── partitions ────────────────────────────────────────────────────────────────────────────────────────────────

    def add_partitions(
        self, request: m.AddPartitionsRequest, *, now: Millis
    ) -> Outcome[Record, m.AddPartitionsResponse]:
        """AddPartitionsToTxn: add partitions before the first write to them."""
        try:
            known = self._of_producer(request.transactional_id, request.producer_id, request.producer_epoch)
        except errors.KafkaError as error:
            return Outcome((), m.AddPartitionsResponse(error.code))
        if known.state is State.ONGOING and request.partitions <= known.partitions:
            return Outcome((), m.AddPartitionsResponse())
        following = known.with_partitions(request.partitions, version=request.version, now=now)
        return _outcome(following, m.AddPartitionsResponse(), *self._first_timer(now=now))

    def verify(self, request: m.AddPartitionsRequest, *, now: Millis) -> Outcome[Record, m.VerifyResponse]:
        """Check that partitions belong to the ongoing transaction (KIP-890)."""
        try:
            known = self._of_producer(request.transactional_id, request.producer_id, request.producer_epoch)
        except errors.KafkaError as error:
            return Outcome((), m.VerifyResponse(dict.fromkeys(request.partitions, error.code)))
        missing = errors.TransactionAbortable.code
        return Outcome(
            (), m.VerifyResponse({each: 0 if each in known.partitions else missing for each in request.partitions})
        )

    def _of_producer(self, transactional_id: str, producer_id: int, producer_epoch: int) -> Transaction:
        if not transactional_id:
            raise errors.InvalidRequest("A transactional id is required.")
        known = self.transactions.get(transactional_id)
        if known is None or known.producer_id != producer_id:
            raise errors.InvalidProducerIdMapping(f"{transactional_id!r} does not belong to producer {producer_id}.")
        if known.producer_epoch != producer_epoch:
            raise errors.ProducerFenced(f"The epoch of {transactional_id!r} is {known.producer_epoch} now.")
        if known.state in PREPARED:
            raise errors.ConcurrentTransactions("The last transaction is not complete.")
        return known

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────────────────

    def end(self, request: m.EndRequest, *, now: Millis) -> Outcome[Record, m.EndResponse]:
        """EndTxn: commit or abort. This is final. Markers follow."""
        try:
            known = self._to_end(request)
            if _is_repeated(known, request):
                _check_repeated(known, request)
                return Outcome((), m.EndResponse(*_next_producer(known, request)))
            _check_state(known, request)
            bumps = request.version >= m.SECOND_VERSION
            following = known.prepared(
                committed=request.committed,
                version=request.version,
                next_producer_id=_spare(request.spare_producer_id) if bumps and known.is_exhausted else NO_PRODUCER_ID,
                now=now,
            )
        except errors.KafkaError as error:
            return Outcome((), m.EndResponse(error_code=error.code))
        return _outcome(following, m.EndResponse(*_next_producer(following.completed(now=now), request)))

    def _to_end(self, request: m.EndRequest) -> Transaction:
        if not request.transactional_id:
            raise errors.InvalidRequest("A transactional id is required.")
        known = self.transactions.get(request.transactional_id)
        if known is None or (known.producer_id != request.producer_id and not _is_repeated(known, request)):
            raise errors.InvalidProducerIdMapping(
                f"{request.transactional_id!r} does not belong to producer {request.producer_id}."
            )
        if not _is_repeated(known, request) and not _has_epoch(known, request):
            raise errors.ProducerFenced(f"The epoch of {request.transactional_id!r} is {known.producer_epoch} now.")
        return known

    @property
    def has_unfinished(self) -> bool:
        """Whether a transaction is decided but not complete."""
        return bool(self._prepared)

    def unfinished(self) -> Iterator[m.Markers]:
        """Yield the markers of transactions that are decided but not complete."""
        for transactional_id in tuple(self._prepared):
            known = self.transactions[transactional_id]
            committed = known.state is State.PREPARE_COMMIT
            yield m.Markers(
                transactional_id, known.producer_id, known.producer_epoch, committed, known.partitions, known.version
            )

    def waits_for(self, markers: m.Markers) -> bool:
        """Return whether the transaction is decided and not complete without these markers."""
        known = self.transactions.get(markers.transactional_id)
        if known is None or known.state not in PREPARED:
            return False
        return (known.producer_id, known.producer_epoch) == (markers.producer_id, markers.producer_epoch)

    def markers_written(self, markers: m.Markers, *, now: Millis) -> Outcome[Record, bool]:
        """Complete a transaction whose markers are all written. Return False if it did not wait for these."""
        if not self.waits_for(markers):
            return Outcome((), False)
        return _outcome(self.transactions[markers.transactional_id].completed(now=now), True)

    # ── queries ──────────────────────────────────────────────────────────────────────────────────────────────────

    def list_transactions(
        self,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        *,
        longer_than: Millis = -1,
        matches: Callable[[str], bool] | None = None,
        now: Millis,
    ) -> Outcome[Record, tuple[m.Listed, ...]]:
        """ListTransactions: return the transactions that match all filters."""
        return Outcome(
            (),
            tuple(
                m.Listed(known.transactional_id, known.producer_id, known.state)
                for known in self.transactions.values()
                if (not states or known.state in states)
                and (not producer_ids or known.producer_id in producer_ids)
                and (longer_than < 0 or (known.started_at >= 0 and now - known.started_at > longer_than))
                and (matches is None or matches(known.transactional_id))
            ),
        )

    def describe(self, transactional_id: str, *, now: Millis) -> Outcome[Record, m.Described]:
        """DescribeTransactions for one id."""
        known = self.transactions.get(transactional_id)
        if known is None:
            error = errors.TransactionalIdNotFound if transactional_id else errors.InvalidRequest
            return Outcome((), m.Described(transactional_id, error.code))
        return Outcome(
            (),
            m.Described(
                transactional_id,
                0,
                known.state,
                known.timeout,
                known.started_at,
                known.producer_id,
                known.producer_epoch,
                tuple(sorted(known.partitions)),
            ),
        )

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def loaded(self, *, now: Millis) -> Outcome[Record, None]:
        """Set the timers after the replay of the log. Called once."""
        every = self.config.transaction_remove_expired_transaction_cleanup_interval_ms
        timers = [Timer(EXPIRE, now + every)]
        if self._ongoing:
            timers.append(self._abort_timer(now=now))
        return Outcome((), None, tuple(timers))

    def fire(self, key: Hashable, /, *, now: Millis) -> Outcome[Record, None]:
        """Handle a due timer."""
        if key == ABORT_TIMED_OUT:
            return self._abort_timed_out(now=now)
        return self._expire(now=now)

    def _abort_timed_out(self, *, now: Millis) -> Outcome[Record, None]:
        """Abort transactions that exceed their timeout. The new epoch fences their producers."""
        ongoing = [self.transactions[each] for each in self._ongoing]
        late = [known for known in ongoing if known.started_at + known.timeout < now]
        fenced = (known.fenced(now=now) for known in late[:AT_ONCE])
        records = tuple(TransactionRecord(known.transactional_id, known) for known in fenced)
        if len(late) > AT_ONCE:
            return Outcome(records, None, (Timer(ABORT_TIMED_OUT, now),))
        return Outcome(records, None, (self._abort_timer(now=now),) if len(ongoing) > len(late) else ())

    def _first_timer(self, *, now: Millis) -> tuple[Timer, ...]:
        # The timer is already set while a transaction is ongoing.
        return () if self._ongoing else (self._abort_timer(now=now),)

    def _abort_timer(self, *, now: Millis) -> Timer:
        every = self.config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        return Timer(ABORT_TIMED_OUT, now + every)

    def _expire(self, *, now: Millis) -> Outcome[Record, None]:
        """Forget transactional ids that have expired."""
        before = now - self.config.transactional_id_expiration_ms
        gone = [
            known.transactional_id
            for known in self.transactions.values()
            if known.state in RESTING and known.updated_at <= before
        ]
        records = tuple(TransactionRecord(transactional_id, None) for transactional_id in gone[:AT_ONCE])
        every = self.config.transaction_remove_expired_transaction_cleanup_interval_ms
        return Outcome(records, None, (Timer(EXPIRE, now if len(gone) > AT_ONCE else now + every),))

    # ── replay ────────────────────────────────────────────────────────────────────────────────────────────────────

    def replay(self, record: Record, /) -> None:
        """Apply a record. Nothing else changes the state."""
        transactional_id, value = record.transactional_id, record.value
        state = State.DEAD if value is None else value.state
        if value is None:
            self.transactions.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = value
        _keep(self._ongoing, transactional_id, state is State.ONGOING)
        _keep(self._prepared, transactional_id, state in PREPARED)


def _outcome(following: Transaction, response: Response, *timers: Timer) -> Outcome[Record, Response]:
    return Outcome((TransactionRecord(following.transactional_id, following),), response, timers)


def _keep(names: dict[str, None], name: str, wanted: bool) -> None:
    if wanted:
        names.setdefault(name)
    else:
        names.pop(name, None)


def _init_error(error: type[errors.KafkaError]) -> m.InitResponse:
    return m.InitResponse(error_code=error.code)


def _spare(producer_id: int) -> int:
    if producer_id == NO_PRODUCER_ID:
        # The id did not need one when the caller checked. The client retries with one.
        raise errors.ConcurrentTransactions("The transactional id has changed. Retry.")
    return producer_id


def _initialised(known: Transaction, request: m.InitRequest, *, now: Millis) -> Transaction:
    expects = request.producer_id != NO_PRODUCER_ID
    if known.is_exhausted and (not expects or request.producer_epoch == known.producer_epoch):
        last_epoch = known.producer_epoch if expects else m.NO_EPOCH
        spare = _spare(request.spare_producer_id)
        return known.rotated(spare, timeout=request.timeout, last_epoch=last_epoch, now=now)
    if not expects:
        return known.started_again(timeout=request.timeout, last_epoch=m.NO_EPOCH, now=now)
    if known.producer_epoch in (m.NO_EPOCH, request.producer_epoch):
        return known.started_again(timeout=request.timeout, last_epoch=known.producer_epoch, now=now)
    if request.producer_epoch == known.last_producer_epoch:
        return known.same_again(timeout=request.timeout, now=now)
    raise errors.ProducerFenced(f"The epoch of {known.transactional_id!r} is {known.producer_epoch} now.")


def _is_repeated(known: Transaction, request: m.EndRequest) -> bool:
    """Return whether this repeats a decided EndTxn. In the second version that EndTxn raised the epoch."""
    if known.state in (State.EMPTY, State.ONGOING):
        return False
    if request.version < m.SECOND_VERSION:
        return (known.producer_id, known.producer_epoch) == (request.producer_id, request.producer_epoch)
    if known.producer_id == request.producer_id:
        return known.producer_epoch == request.producer_epoch + 1
    return (
        known.previous_producer_id == request.producer_id
        and request.producer_epoch == LAST_EPOCH
        and known.producer_epoch == 0
    )


def _has_epoch(known: Transaction, request: m.EndRequest) -> bool:
    if request.version >= m.SECOND_VERSION and known.state in PREPARED:
        return False
    return known.producer_epoch == request.producer_epoch


def _check_repeated(known: Transaction, request: m.EndRequest) -> None:
    was_commit = known.state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)
    if was_commit != request.committed:
        raise errors.InvalidTxnState(f"The transaction is in the state {known.state}.")
    if known.state in PREPARED:
        raise errors.ConcurrentTransactions("The markers are still being written.")


def _check_state(known: Transaction, request: m.EndRequest) -> None:
    """Reject an invalid EndTxn. The second version may abort without an open transaction."""
    if known.state is State.ONGOING:
        return
    if known.state in RESTING and request.version >= m.SECOND_VERSION and not request.committed:
        return
    raise errors.InvalidTxnState(f"The transaction is in the state {known.state}.")


def _next_producer(known: Transaction, request: m.EndRequest) -> tuple[int, int]:
    if request.version < m.SECOND_VERSION:
        return NO_PRODUCER_ID, m.NO_EPOCH
    return known.producer_id, known.producer_epoch
