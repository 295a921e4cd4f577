"""The changes of partitions that one operation makes, collected into records."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from collections.abc import Set as AbstractSet

from ottla.metadata import records as r
from ottla.metadata.elections import Rules, is_unclean, settle
from ottla.metadata.machine import Metadata, changed
from ottla.metadata.values import PartitionState, Topic
from ottla.types import Millis

#: What the reason of a change ends with if records may be lost by it.
UNCLEAN = "unclean election: records may be lost"


class Changes:
    """New states of partitions. A partition that changes twice is seen with its first change by the second one."""

    def __init__(self, metadata: Metadata, active: AbstractSet[int], *, now: Millis) -> None:
        self.active = active
        self._metadata = metadata
        self._now = now
        self._states: dict[tuple[str, int], PartitionState] = {}
        self._pending: dict[tuple[str, str], dict[int, PartitionState]] = {}
        self._records: list[r.PartitionsChanged] = []
        self._rules: dict[str, tuple[int, bool]] = {}

    def partitions(self) -> Iterator[tuple[Topic, int, PartitionState]]:
        """Yield all partitions of all topics, as they were before the operation."""
        for topic in self._metadata.topics.values():
            for index, state in enumerate(topic.states):
                yield topic, index, state

    def state(self, topic: Topic, index: int) -> PartitionState:
        """Return the state of a partition after the changes so far."""
        return self._states.get((topic.name, index), topic.states[index])

    def settle(
        self,
        topic: Topic,
        index: int,
        wanted: PartitionState,
        reason: str,
        *,
        lost: Collection[int] = (),
        prefer_first: bool = False,
        unclean: bool = False,
    ) -> PartitionState:
        """Change a partition as `elections.settle` decides, and return its new state."""
        before = self.state(topic, index)
        min_isr, allows_unclean = self._settings(topic)
        rules = Rules(self.active, min_isr, unclean or allows_unclean)
        after = settle(before, wanted, rules, lost=lost, prefer_first=prefer_first)
        if after is before:
            return before
        if wanted.is_reassigning and not after.is_reassigning:
            reason = f"{reason}; reassignment completed"
        if is_unclean(before, wanted, after):
            reason = f"{reason}; {UNCLEAN}"
        if (topic.name, index) in self._states:
            self._flush()
        self._states[topic.name, index] = after
        self._pending.setdefault((topic.name, reason), {})[index] = after
        return after

    def take(self) -> list[r.PartitionsChanged]:
        """Return the records of the changes since the last call."""
        self._flush()
        records, self._records = self._records, []
        return records

    def _flush(self) -> None:
        for (name, reason), states in self._pending.items():
            self._records += changed(name, states, reason, at=self._now)
        self._pending.clear()

    def _settings(self, topic: Topic) -> tuple[int, bool]:
        found = self._rules.get(topic.name)
        if found is None:
            found = self._rules[topic.name] = self._metadata.settings(topic)
        return found
