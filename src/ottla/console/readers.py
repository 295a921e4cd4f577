"""Reads `__consumer_offsets` for the pages of groups. A second look at a group reads only what is new.

What several browsers ask for at the same time is computed once.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ottla.clients.admin.offsets_topic import GroupHistory, GroupReader
from ottla.clients.cluster.cluster import Cluster
from ottla.errors import AuthorizationError, UnknownTopicOrPartition
from ottla.types import Millis, TopicPartition

KEPT = 50
PATIENCE = 2.0
"""How many seconds a page waits for the first reading of a large partition."""
T = TypeVar("T")


class Read(NamedTuple):
    """What is known of a group."""

    history: GroupHistory
    commits: Mapping[TopicPartition, Sequence[tuple[Millis, int]]]
    is_complete: bool
    """Whether all records were read, so far."""


class _Reading:
    def __init__(self, reader: GroupReader) -> None:
        self.reader = reader
        self.task: asyncio.Task[GroupHistory] | None = None
        self.values: dict[str, tuple[float, Any]] = {}
        self.lock = asyncio.Lock()


class GroupReaders:
    """The groups that somebody looked at lately."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._readings: OrderedDict[str, _Reading] = OrderedDict()

    async def read(self, group: str) -> Read:
        """The rebalances of a group, and its commits. Both are empty if the user may not read the topic."""
        reading = self._reading(group)
        if reading.task is None or reading.task.done():
            reading.task = asyncio.create_task(reading.reader.read())
        done, _ = await asyncio.wait([reading.task], timeout=PATIENCE)
        if done:
            error = reading.task.exception()
            if error is not None and not isinstance(error, AuthorizationError | UnknownTopicOrPartition):
                raise error
        return Read(reading.reader.history, reading.reader.commits, bool(done))

    async def cached(self, group: str, name: str, seconds: float, make: Callable[[], Awaitable[T]]) -> T:
        """What `make` returns, or what it returned not long ago."""
        reading = self._reading(group)
        async with reading.lock:
            at, value = reading.values.get(name, (float("-inf"), None))
            if at < time.monotonic():
                value = await make()
                reading.values[name] = time.monotonic() + seconds, value
            found: T = value
            return found

    def forget(self, group: str) -> None:
        """Compute again: an action changed the group."""
        self._reading(group).values.clear()

    async def close(self) -> None:
        tasks = [one.task for one in self._readings.values() if one.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _reading(self, group: str) -> _Reading:
        if group not in self._readings:
            self._readings[group] = _Reading(GroupReader(self._cluster, group))
        self._readings.move_to_end(group)
        while len(self._readings) > KEPT:
            _, old = self._readings.popitem(last=False)
            if old.task is not None:
                old.task.cancel()
        return self._readings[group]
