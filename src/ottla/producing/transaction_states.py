"""The states of a producer's transactions, the allowed transitions, and the errors for calls in the wrong state."""

from __future__ import annotations

from enum import Enum

from ottla.errors import OttlaError


class State(Enum):
    UNINITIALIZED = "Uninitialized"
    INITIALIZING = "Initializing"
    READY = "Ready"
    IN_TRANSACTION = "InTransaction"
    COMMITTING = "CommittingTransaction"
    ABORTING = "AbortingTransaction"
    ABORTABLE_ERROR = "AbortableError"
    FATAL_ERROR = "FatalError"


S = State
FOLLOWS: dict[State, frozenset[State]] = {
    S.UNINITIALIZED: frozenset({S.INITIALIZING, S.FATAL_ERROR}),
    S.INITIALIZING: frozenset({S.READY, S.FATAL_ERROR}),
    # A producer that switches its transactional id, or leaves a transaction open for others, starts over.
    S.READY: frozenset({S.IN_TRANSACTION, S.UNINITIALIZED, S.FATAL_ERROR}),
    S.IN_TRANSACTION: frozenset({S.COMMITTING, S.ABORTING, S.ABORTABLE_ERROR, S.UNINITIALIZED, S.FATAL_ERROR}),
    S.COMMITTING: frozenset({S.READY, S.ABORTABLE_ERROR, S.FATAL_ERROR}),
    S.ABORTABLE_ERROR: frozenset({S.ABORTING, S.FATAL_ERROR}),
    # After some errors only another epoch ensures that nothing of the transaction arrives late.
    S.ABORTING: frozenset({S.READY, S.INITIALIZING, S.FATAL_ERROR}),
    S.FATAL_ERROR: frozenset(),
}
"""Which state may follow which."""


class TransactionMisuse(OttlaError):
    """A call that the state of the transaction does not allow; the message names one that it does."""


WHERE = {
    S.UNINITIALIZED: "yet: call init_transactions() first",
    S.INITIALIZING: "while init_transactions() or abort_transaction() is in progress: wait for it, or call it again",
    S.READY: "outside a transaction: call begin_transaction() first, or use `with producer.transaction():`",
    S.IN_TRANSACTION: "in a transaction: commit_transaction() or abort_transaction() ends it",
    S.COMMITTING: "while the transaction is being committed: wait for commit_transaction(), or call it again",
    S.ABORTING: "while the transaction is being aborted: wait for abort_transaction(), or call it again",
    S.ABORTABLE_ERROR: "after an error: call abort_transaction()",
    S.FATAL_ERROR: "after a fatal error: create a new producer",
}
