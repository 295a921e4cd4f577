"""Random histories of a partition: nothing that was committed is lost or changes, and in the end all logs agree."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.metadata.values import NO_LEADER
from unit.replication.history import History, Operation

TROUBLE = ("checkpoint", "wait", "lose", "time_out", "suspect", "stop", "start")
WORK = ("produce", "round", "image", "start", "propose", "deliver", "fetch")
ROUGH = TROUBLE + WORK + ("produce", "round", "image", "deliver") * 2
OPERATIONS = st.lists(
    st.tuples(st.sampled_from(ROUGH), st.integers(0, 11), st.integers(0, 7)), min_size=20, max_size=120
)


def check(operations: list[Operation]) -> None:
    history = History()
    history.run(operations)
    history.settle()
    state = history.controller.state
    if state.leader == NO_LEADER:
        return  # All eligible replicas have stopped uncleanly.
    leader = history.brokers[state.leader]
    assert set(state.isr) == {1, 2, 3}
    for broker in history.brokers.values():
        assert broker.log.entries == leader.log.entries
        assert broker.high_watermark == leader.log.log_end_offset


@settings(max_examples=100, deadline=None)
@given(OPERATIONS)
def test_what_is_committed_stays_and_all_replicas_converge(operations: list[Operation]) -> None:
    check(operations)


@pytest.mark.parametrize("names", [ROUGH, ROUGH + WORK * 3, ROUGH + WORK * 6], ids=["rough", "mixed", "calm"])
def test_long_histories(names: tuple[str, ...]) -> None:
    for seed in range(200):
        choose = random.Random(seed)
        length = choose.randrange(100, 300)
        check([(choose.choice(names), choose.randrange(12), choose.randrange(8)) for _ in range(length)])
