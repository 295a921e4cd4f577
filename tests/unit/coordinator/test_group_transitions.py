"""The states of a classic group and the transitions between them."""

from __future__ import annotations

import pytest
from group_context import GroupContext

from ottla.coordinator.transitions import (
    TRANSITIONS,
    IllegalTransition,
    State,
    can_rebalance,
    check_transition,
    mermaid,
)

#: As in Kafka's ClassicGroupState: from which states a state may be entered.
KAFKA = {
    State.EMPTY: {State.PREPARING_REBALANCE},
    State.PREPARING_REBALANCE: {State.STABLE, State.COMPLETING_REBALANCE, State.EMPTY},
    State.COMPLETING_REBALANCE: {State.PREPARING_REBALANCE},
    State.STABLE: {State.COMPLETING_REBALANCE},
    State.DEAD: {State.STABLE, State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE, State.EMPTY},
}


def test_the_table_allows_what_kafka_allows() -> None:
    allowed: dict[State, set[State]] = {state: set() for state in State}
    for row in TRANSITIONS:
        allowed[row.target].add(row.source)
    assert allowed == KAFKA


@pytest.mark.parametrize("source", State)
@pytest.mark.parametrize("target", State)
def test_a_way_that_is_not_in_the_table_is_refused(source: State, target: State) -> None:
    if source in KAFKA[target]:
        check_transition(source, target)
    else:
        with pytest.raises(IllegalTransition, match=f"from {source} to {target}"):
            check_transition(source, target)


def test_a_rebalance_may_begin_in_every_living_state_but_its_own() -> None:
    assert {state for state in State if can_rebalance(state)} == {
        State.EMPTY,
        State.COMPLETING_REBALANCE,
        State.STABLE,
    }


def test_the_diagram_has_every_way_of_the_table() -> None:
    lines = mermaid().splitlines()
    assert lines[0] == "stateDiagram-v2"
    assert all(f"    {row.source} --> {row.target}: {row.when}" in lines for row in TRANSITIONS)


def test_a_group_lives_from_empty_through_stable_to_empty() -> None:
    context = GroupContext()
    member_id = context.join().response.member_id
    seen = [context.state]
    context.join(member_id)
    seen.append(context.state)
    context.sleep(3_000)
    seen.append(context.state)
    context.sync(member_id)
    seen.append(context.state)
    context.leave(member_id)
    seen.append(context.state)
    assert seen == ["Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Empty"]
