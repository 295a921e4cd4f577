"""The states of a transaction and the ways between them: one table, from which the picture in the docs is drawn."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    """By Kafka's names, as clients are told them."""

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
#: Nothing is open in these: the next transaction may begin, and an id may expire.
RESTING = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
#: Decided, and not every partition has its marker.
PREPARED = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})


class Transition(NamedTuple):
    source: State
    target: State
    when: str


TRANSITIONS = (
    Transition(State.EMPTY, State.EMPTY, "a producer starts again: its epoch is raised"),
    Transition(State.EMPTY, State.ONGOING, "partitions or offsets are added"),
    Transition(State.EMPTY, State.PREPARE_ABORT, "abort by the second protocol version, which does not know better"),
    Transition(State.EMPTY, State.DEAD, "the id expires"),
    Transition(State.ONGOING, State.ONGOING, "more partitions or offsets are added"),
    Transition(State.ONGOING, State.PREPARE_COMMIT, "commit"),
    Transition(State.ONGOING, State.PREPARE_ABORT, "abort"),
    Transition(State.ONGOING, State.PREPARE_EPOCH_FENCE, "the time is over, or the producer starts again"),
    Transition(State.PREPARE_EPOCH_FENCE, State.PREPARE_ABORT, "in the same step"),
    Transition(State.PREPARE_COMMIT, State.COMPLETE_COMMIT, "every partition has its marker"),
    Transition(State.PREPARE_ABORT, State.COMPLETE_ABORT, "every partition has its marker"),
    Transition(State.COMPLETE_COMMIT, State.ONGOING, "partitions or offsets are added"),
    Transition(State.COMPLETE_COMMIT, State.EMPTY, "a producer starts again"),
    Transition(State.COMPLETE_COMMIT, State.PREPARE_ABORT, "abort by the second protocol version"),
    Transition(State.COMPLETE_COMMIT, State.DEAD, "the id expires"),
    Transition(State.COMPLETE_ABORT, State.ONGOING, "partitions or offsets are added"),
    Transition(State.COMPLETE_ABORT, State.EMPTY, "a producer starts again"),
    Transition(State.COMPLETE_ABORT, State.PREPARE_ABORT, "abort by the second protocol version"),
    Transition(State.COMPLETE_ABORT, State.DEAD, "the id expires"),
)
_ALLOWED = frozenset((row.source, row.target) for row in TRANSITIONS)


class IllegalTransition(RuntimeError):
    """A transaction was to go a way that is not in the table: a mistake in this package."""


def check_transition(source: State, target: State) -> None:
    """Raise IllegalTransition for a way that is not in the table.

    >>> check_transition(State.ONGOING, State.PREPARE_COMMIT)
    """
    if (source, target) not in _ALLOWED:
        raise IllegalTransition(f"a transaction cannot go from {source} to {target}")


def mermaid() -> str:
    """Return the table as a state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {State.EMPTY}"]
    lines += [f"    {row.source} --> {row.target}: {row.when}" for row in TRANSITIONS]
    return "\n".join([*lines, f"    {State.DEAD} --> [*]"])
