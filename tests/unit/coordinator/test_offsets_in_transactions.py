"""Plain and transactional commits of the same offset in every order: the later record in the log wins."""

from __future__ import annotations

from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from ottla import errors
from ottla.coordinator import messages as m
from ottla.coordinator import records as r
from ottla.coordinator.offsets import NO_PRODUCER, Offsets

GROUP, TOPIC = "g", "orders"
PRODUCERS, PARTITIONS = (1, 2, 3), (0, 1)
Step: TypeAlias = tuple[str, int, int]
"""An event, the producer and the partition."""

steps = st.one_of(
    st.tuples(st.just("commit"), st.sampled_from((NO_PRODUCER, *PRODUCERS)), st.sampled_from(PARTITIONS)),
    st.tuples(st.just("delete"), st.just(NO_PRODUCER), st.sampled_from(PARTITIONS)),
    st.tuples(st.sampled_from(["end", "abort"]), st.sampled_from(PRODUCERS), st.just(0)),
)


class Model:
    """The rule by itself. Every offset is the number of its record in the log."""

    def __init__(self) -> None:
        self.committed: dict[int, int] = {}
        self.pending: dict[int, dict[int, int]] = {producer: {} for producer in PRODUCERS}

    def step(self, number: int, what: str, producer: int, partition: int) -> None:
        if what == "delete":
            for offsets in (self.committed, *self.pending.values()):
                offsets.pop(partition, None)
        elif what == "commit":
            (self.committed if producer == NO_PRODUCER else self.pending[producer])[partition] = number
        else:
            for place, offset in self.pending[producer].items():
                if what == "end":
                    self.committed[place] = max(offset, self.committed.get(place, -1))
            self.pending[producer] = {}

    def is_open(self, partition: int) -> bool:
        return any(partition in offsets for offsets in self.pending.values())


def replay(offsets: Offsets, number: int, what: str, producer: int, partition: int) -> None:
    key = r.OffsetCommitKey(GROUP, TOPIC, partition)
    if what == "commit":
        offsets.replay(key, r.OffsetCommitValue(number), producer)
    elif what == "delete":
        offsets.replay(key, None, NO_PRODUCER)
    else:
        offsets.end_transaction(producer, committed=what == "end")


@given(st.lists(steps, max_size=30))
def test_the_later_record_wins(history: list[Step]) -> None:
    offsets, model = Offsets(4096), Model()
    for number, step in enumerate(history):
        replay(offsets, number, *step)
        model.step(number, *step)
        found = {place.partition: value.offset for place, value in offsets.of_group(GROUP).items()}
        assert found == model.committed
        asked = m.FetchRequest(GROUP, (m.TopicToFetch(TOPIC, PARTITIONS),), require_stable=True)
        unstable = [each.error_code == errors.UnstableOffsetCommit.code for each in offsets.fetch(asked).partitions]
        assert unstable == [model.is_open(partition) for partition in PARTITIONS]
        assert offsets.has_any(GROUP) == bool(found or any(unstable))
