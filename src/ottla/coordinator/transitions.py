"""The states of a classic group and the ways between them: one table, from which the picture in the docs is drawn."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    """By Kafka's names, as clients are told them."""

    EMPTY = "Empty"
    """No members; offsets may be there."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Waits until all members have joined again."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """Waits for the leader's assignment."""
    STABLE = "Stable"
    DEAD = "Dead"
    """Gone, or the coordinator is no longer this broker."""


class Transition(NamedTuple):
    source: State
    target: State
    when: str


TRANSITIONS = (
    Transition(State.EMPTY, State.PREPARING_REBALANCE, "a member joins"),
    Transition(State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE, "all members joined, or the time is over"),
    Transition(State.PREPARING_REBALANCE, State.EMPTY, "the last member has gone"),
    Transition(State.COMPLETING_REBALANCE, State.STABLE, "the leader's assignment is in the log"),
    Transition(State.COMPLETING_REBALANCE, State.PREPARING_REBALANCE, "a member joins, leaves, expires or never syncs"),
    Transition(
        State.STABLE, State.PREPARING_REBALANCE, "a member joins, leaves, expires or changes, the leader rejoins"
    ),
    Transition(State.EMPTY, State.DEAD, "deleted, expired, or the partition moves away"),
    Transition(State.PREPARING_REBALANCE, State.DEAD, "the partition moves away"),
    Transition(State.COMPLETING_REBALANCE, State.DEAD, "the partition moves away"),
    Transition(State.STABLE, State.DEAD, "the partition moves away"),
)
_ALLOWED = frozenset((row.source, row.target) for row in TRANSITIONS)


class IllegalTransition(RuntimeError):
    """A group was to go a way that is not in the table: a mistake in this package."""


def check_transition(source: State, target: State) -> None:
    """Raise IllegalTransition for a way that is not in the table.

    >>> check_transition(State.EMPTY, State.PREPARING_REBALANCE)
    """
    if (source, target) not in _ALLOWED:
        raise IllegalTransition(f"a group cannot go from {source} to {target}")


def can_rebalance(state: State) -> bool:
    """Whether a rebalance may begin in this state."""
    return (state, State.PREPARING_REBALANCE) in _ALLOWED


def mermaid() -> str:
    """Return the table as a state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {State.EMPTY}"]
    lines += [f"    {row.source} --> {row.target}: {row.when}" for row in TRANSITIONS]
    return "\n".join([*lines, f"    {State.DEAD} --> [*]"])
