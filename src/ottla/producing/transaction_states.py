"""The states of a producer's transactions, the allowed transitions, and the errors for calls in the wrong state."""

from __future__ import annotations

from enum import Enum

from ottla.errors import OttlaError
from ottla.transitions import Transitions


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
TRANSITIONS = Transitions(
    "a producer's transaction",
    [
        (S.UNINITIALIZED, S.INITIALIZING, "init_transactions()"),
        (S.INITIALIZING, S.READY, "the producer has its epoch"),
        (S.READY, S.IN_TRANSACTION, "begin_transaction()"),
        (S.READY, S.UNINITIALIZED, "the producer takes another transactional id"),
        (S.IN_TRANSACTION, S.COMMITTING, "commit_transaction()"),
        (S.IN_TRANSACTION, S.ABORTING, "abort_transaction()"),
        (S.IN_TRANSACTION, S.ABORTABLE_ERROR, "an error"),
        (S.IN_TRANSACTION, S.UNINITIALIZED, "another process will end the transaction"),
        (S.COMMITTING, S.READY, "committed"),
        (S.COMMITTING, S.ABORTABLE_ERROR, "an error"),
        (S.ABORTABLE_ERROR, S.ABORTING, "abort_transaction()"),
        (S.ABORTING, S.READY, "aborted"),
        (S.ABORTING, S.INITIALIZING, "aborted, and only a new epoch keeps late records out"),
        *((state, S.FATAL_ERROR, "a fatal error") for state in S if state is not S.FATAL_ERROR),
    ],
)


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
