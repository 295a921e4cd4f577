"""The states of a classic group, the transitions between them, and where a group stands now."""

from __future__ import annotations

from enum import StrEnum

from ottla.coordinator import records as r
from ottla.transitions import Transitions
from ottla.types import Millis

CONSUMER_PROTOCOL_TYPE = "consumer"


class State(StrEnum):
    """Kafka's names, as clients see them."""

    EMPTY = "Empty"
    """The group has no members. It may have offsets."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """The group waits until all members have joined again."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """The group waits for the leader's assignment."""
    STABLE = "Stable"
    DEAD = "Dead"
    """The group was deleted, or its partition has moved to another broker."""


TRANSITIONS = Transitions(
    "a group",
    [
        (State.EMPTY, State.PREPARING_REBALANCE, "a member joins"),
        (State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE, "all members have joined, or the wait is over"),
        (State.PREPARING_REBALANCE, State.EMPTY, "the last member has gone"),
        (State.COMPLETING_REBALANCE, State.STABLE, "the leader's assignment is in the log"),
        (State.COMPLETING_REBALANCE, State.PREPARING_REBALANCE, "a member joins, leaves, expires or never syncs"),
        (
            State.STABLE,
            State.PREPARING_REBALANCE,
            "a member joins, leaves, expires or changes, or the leader joins again",
        ),
        (State.EMPTY, State.DEAD, "deleted, expired, or the partition moves away"),
        (State.PREPARING_REBALANCE, State.DEAD, "the partition moves away"),
        (State.COMPLETING_REBALANCE, State.DEAD, "the partition moves away"),
        (State.STABLE, State.DEAD, "the partition moves away"),
    ],
)


class Status:
    """The state and the generation of a group. Soft state: while a group rebalances, it is ahead of the log."""

    __slots__ = ("generation", "protocol", "protocol_type", "since", "state")

    def __init__(self, *, now: Millis) -> None:
        self.state = State.EMPTY
        self.since = now
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance may start in this state."""
        return TRANSITIONS.allows(self.state, State.PREPARING_REBALANCE)

    def move_to(self, state: State, *, now: Millis) -> None:
        TRANSITIONS.check(self.state, state)
        self.state = state
        self.since = now

    def replay(self, value: r.GroupMetadataValue) -> None:
        """Become what the log says."""
        self.state = State.STABLE if value.members else State.EMPTY
        self.since = value.current_state_timestamp
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol = value.protocol
