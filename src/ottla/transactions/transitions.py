"""The states of a transaction and the transitions between them."""

from __future__ import annotations

from enum import StrEnum

from ottla.transitions import Transitions


class State(StrEnum):
    """Kafka's names, as clients see them."""

    EMPTY = "Empty"
    """A producer has its id and epoch, and no transaction yet."""
    ONGOING = "Ongoing"
    """Partitions have been added."""
    PREPARE_COMMIT = "PrepareCommit"
    """Decided, and never undone: the markers are being written."""
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    """Every partition has its marker."""
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    """Expired: the id is forgotten with the tombstone that says so."""
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    """The epoch is raised so that the producer is fenced. Never written: it becomes PrepareAbort in the same step."""


#: The number of each state in the records of ``__transaction_state``.
NUMBERS = {state: number for number, state in enumerate(State)}
BY_NUMBER = {number: state for state, number in NUMBERS.items()}
#: No transaction is open: the next one may begin, and the id may expire.
RESTING = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
#: Decided, and not every partition has its marker.
PREPARED = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})

TRANSITIONS = Transitions(
    "a transaction",
    [
        (State.EMPTY, State.EMPTY, "a producer starts again: its epoch is raised"),
        (State.EMPTY, State.ONGOING, "partitions or offsets are added"),
        (State.EMPTY, State.PREPARE_ABORT, "abort by the second protocol version, which does not know better"),
        (State.EMPTY, State.DEAD, "the id expires"),
        (State.ONGOING, State.ONGOING, "more partitions or offsets are added"),
        (State.ONGOING, State.PREPARE_COMMIT, "commit"),
        (State.ONGOING, State.PREPARE_ABORT, "abort"),
        (State.ONGOING, State.PREPARE_EPOCH_FENCE, "the time is over, or the producer starts again"),
        (State.PREPARE_EPOCH_FENCE, State.PREPARE_ABORT, "in the same step"),
        (State.PREPARE_COMMIT, State.COMPLETE_COMMIT, "every partition has its marker"),
        (State.PREPARE_ABORT, State.COMPLETE_ABORT, "every partition has its marker"),
        (State.COMPLETE_COMMIT, State.ONGOING, "partitions or offsets are added"),
        (State.COMPLETE_COMMIT, State.EMPTY, "a producer starts again"),
        (State.COMPLETE_COMMIT, State.PREPARE_ABORT, "abort by the second protocol version"),
        (State.COMPLETE_COMMIT, State.DEAD, "the id expires"),
        (State.COMPLETE_ABORT, State.ONGOING, "partitions or offsets are added"),
        (State.COMPLETE_ABORT, State.EMPTY, "a producer starts again"),
        (State.COMPLETE_ABORT, State.PREPARE_ABORT, "abort by the second protocol version"),
        (State.COMPLETE_ABORT, State.DEAD, "the id expires"),
    ],
)
