"""The states of a classic group and the transitions between them."""

from __future__ import annotations

import pytest

from ottla.coordinator.classic.states import State, Status
from ottla.transitions import IllegalTransition

#: The states from which a state may be entered, as in Kafka's ClassicGroupState.
KAFKA = {
    State.EMPTY: {State.PREPARING_REBALANCE},
    State.PREPARING_REBALANCE: {State.STABLE, State.COMPLETING_REBALANCE, State.EMPTY},
    State.COMPLETING_REBALANCE: {State.PREPARING_REBALANCE},
    State.STABLE: {State.COMPLETING_REBALANCE},
    State.DEAD: {State.STABLE, State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE, State.EMPTY},
}


@pytest.mark.parametrize("source", State)
@pytest.mark.parametrize("target", State)
def test_a_transition_that_is_not_in_the_table_is_rejected(source: State, target: State) -> None:
    status = Status(now=0)
    status.state = source
    if source in KAFKA[target]:
        status.move_to(target, now=5)
        assert (status.state, status.since) == (target, 5)
    else:
        with pytest.raises(IllegalTransition, match=f"a group cannot go from {source} to {target}"):
            status.move_to(target, now=5)
        assert (status.state, status.since) == (source, 0)


@pytest.mark.parametrize("state", State)
def test_a_rebalance_may_start_in_every_living_state_but_its_own(state: State) -> None:
    status = Status(now=0)
    status.state = state
    assert status.can_rebalance == (state in {State.EMPTY, State.COMPLETING_REBALANCE, State.STABLE})
