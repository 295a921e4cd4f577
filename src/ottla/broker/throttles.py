"""Limits of replication, so that a reassignment leaves room for clients.

As in Kafka, rates belong to brokers and the throttled replicas are configs of their topics. Only replicas that are not
in sync are slowed down: others would fall out of sync. What all throttled replicas move counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.config.fields import LONG_MAX
from ottla.types import BrokerId, Millis

if TYPE_CHECKING:
    from ottla.broker.node import Node
    from ottla.broker.partition import Partition

#: The time whose bytes may be moved at once, if the machine was too slow to move them before.
BURST_MS: Millis = 1_000
#: After this time without a question nothing was to be moved, and nothing is saved up.
IDLE_MS: Millis = 2_000
#: A follower without room waits for the bytes of this time, so that fetches are not tiny.
PAUSE_MS: Millis = 100


class Throttle:
    """Limits how many bytes are moved in a second.

    >>> now = 0
    >>> throttle = Throttle(rate=lambda: 1000, now=lambda: now)
    >>> now = 500
    >>> throttle.room()
    500
    >>> throttle.moved(700)
    >>> throttle.room()
    -200
    >>> throttle.pause()
    300
    """

    __slots__ = ("_now", "_rate", "_room", "_since")

    def __init__(self, rate: Callable[[], int], now: Callable[[], Millis]) -> None:
        self._rate = rate
        self._now = now
        self._room = 0.0
        self._since = now()

    def room(self) -> int:
        """Return how many bytes may be moved now. 0 or less means that none may."""
        rate = self._rate()
        if rate == LONG_MAX:
            return LONG_MAX
        now = self._now()
        elapsed = now - self._since
        if elapsed > IDLE_MS:
            self._room, elapsed = 0.0, PAUSE_MS
        self._room = min(self._room + rate * elapsed / 1000, rate * BURST_MS / 1000)
        self._since = now
        return int(self._room)

    def moved(self, size: int) -> None:
        """Count bytes. They may be more than there was room for, because a batch is not divided."""
        if self._rate() != LONG_MAX:
            self._room -= size

    def pause(self) -> Millis:
        """Return how long to wait until there is enough room for a fetch."""
        rate = max(1, self._rate())
        return min(PAUSE_MS + int(max(0, -self.room()) * 1000 / rate), BURST_MS)


class Throttles:
    """The limits of one broker, as a leader and as a follower."""

    def __init__(self, node: Node) -> None:
        now = node.clock.elapsed
        self.leader = Throttle(lambda: node.config.leader_replication_throttled_rate, now)
        self.follower = Throttle(lambda: node.config.follower_replication_throttled_rate, now)
        self._node = node

    def is_leader_throttled(self, partition: Partition) -> bool:
        """Whether the config of the topic throttles the replica on this broker as a leader."""
        names = partition.log.config.leader_replication_throttled_replicas
        return bool(names) and _includes(names, partition.index, self._node.id)

    def is_follower_throttled(self, partition: Partition) -> bool:
        """Whether the config of the topic throttles the replica on this broker as a follower."""
        names = partition.log.config.follower_replication_throttled_replicas
        return bool(names) and _includes(names, partition.index, self._node.id)


def _includes(names: tuple[str, ...], index: int, broker_id: BrokerId) -> bool:
    return names == ("*",) or f"{index}:{broker_id}" in names
