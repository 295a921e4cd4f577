"""Virtual time, a network that counts, and a ledger of who reads what. Everything follows from the seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from ottla.lab.virtual import Timeline
from ottla.types import Millis

BUCKET: Millis = 100
COMMIT: Millis = 5_000
RATE = 10
"""Records per second in each partition."""


class Reader(Protocol):
    """A member, as the ledger sees it."""

    name: str

    @property
    def reads(self) -> bool:
        """Whether its process runs."""

    def may_commit(self, partition: int) -> bool:
        """Whether nobody would refuse its commits now."""


@dataclass
class Ledger:
    """Counts messages, and follows the readers of each partition."""

    requests: int = 0
    notifications: int = 0
    size: int = 0
    moves: int = 0
    split_brains: int = 0
    """Moments at which a partition got a second reader, and nobody would refuse the commits of either."""
    read_twice: float = 0.0
    last_change: Millis = 0
    without: Counter[int] = field(default_factory=Counter)
    """For each partition, how long nobody read it."""
    unread: list[tuple[Millis, int]] = field(default_factory=list)
    """How many partitions nobody read, at each change."""
    _bursts: Counter[Millis] = field(default_factory=Counter)
    _owners: dict[int, list[Reader]] = field(default_factory=dict)
    _owned: dict[Reader, set[int]] = field(default_factory=dict)
    _idle_since: dict[int, Millis] = field(default_factory=dict)
    _last_owner: dict[int, str] = field(default_factory=dict)
    _read_until: dict[int, Millis] = field(default_factory=dict)
    _committed: dict[int, Millis] = field(default_factory=dict)

    @property
    def burst(self) -> int:
        """The most messages within a tenth of a second."""
        return max(self._bursts.values(), default=0)

    def message(self, size: int, *, now: Millis, is_notification: bool = False, count: int = 1) -> None:
        """Count one message, or several of the same size at once."""
        self.notifications += count * is_notification
        self.requests += count * (not is_notification)
        self.size += count * size
        self._bursts[now // BUCKET] += count

    def start_over(self, *, now: Millis) -> None:
        """Forget what was counted so far: the churn begins."""
        self.requests = self.notifications = self.size = self.moves = self.split_brains = 0
        self.read_twice = 0.0
        self.without.clear()
        self._bursts.clear()
        self._idle_since = dict.fromkeys(self._idle_since, now)
        self.unread = [(now, len(self._idle_since))]

    def add_partitions(self, first: int, last: int, *, now: Millis) -> None:
        for partition in range(first, last):
            self._owners[partition] = []
            self._idle_since[partition] = now
            self._read_until[partition] = self._committed[partition] = now

    def claim(self, reader: Reader, partition: int, identity: str, *, now: Millis) -> None:
        """A member starts to read a partition, at the committed offset."""
        self._advance(partition, now)
        self.read_twice += max(self._read_until[partition] - self._committed[partition], 0) / 1000 * RATE
        self._read_until[partition] = max(self._read_until[partition], self._committed[partition])
        if self._last_owner.get(partition) != identity:
            self.moves += 1
        self._last_owner[partition] = identity
        self._owners[partition].append(reader)
        self._owned.setdefault(reader, set()).add(partition)
        self.last_change = now
        self._check(partition)
        self._idle(partition, now)

    def release(self, reader: Reader, partition: int, *, commits: bool, now: Millis) -> None:
        """A member ends to read a partition."""
        if reader not in self._owners[partition]:
            return
        self._advance(partition, now)
        if commits:
            self._committed[partition] = now
        self._owners[partition].remove(reader)
        if reader not in self._owners[partition]:
            self._owned[reader].discard(partition)
        self.last_change = now
        self._idle(partition, now)

    def owns(self, reader: Reader) -> list[int]:
        return sorted(self._owned.get(reader, ()))

    def commit(self, reader: Reader, *, now: Millis) -> None:
        for partition in self.owns(reader):
            if reader.may_commit(partition):
                self._advance(partition, now)
                self._committed[partition] = max(self._committed[partition], now)

    def advance(self, reader: Reader, *, now: Millis) -> None:
        """A member has read up to now."""
        for partition in self.owns(reader):
            self._advance(partition, now)

    def changed(self, reader: Reader, *, now: Millis) -> None:
        """A member was paused, or goes on."""
        for partition in self.owns(reader):
            self._idle(partition, now)
            if reader.reads:
                self._check(partition)

    def finish(self, *, now: Millis) -> None:
        for partition, since in self._idle_since.items():
            self.without[partition] += max(now - since, 0)
        self.unread.append((now, len(self._idle_since)))

    @property
    def is_complete(self) -> bool:
        """Whether each partition has one reader."""
        if self._idle_since:
            return False
        return all(len([one for one in some if one.reads]) == 1 for some in self._owners.values())

    def _check(self, partition: int) -> None:
        accepted = [one for one in self._owners[partition] if one.reads and one.may_commit(partition)]
        self.split_brains += len(accepted) > 1

    def _advance(self, partition: int, now: Millis) -> None:
        if any(one.reads for one in self._owners[partition]):
            self._read_until[partition] = now

    def _idle(self, partition: int, now: Millis) -> None:
        is_read = any(one.reads for one in self._owners[partition])
        since = self._idle_since.pop(partition, None)
        if since is not None:
            self.without[partition] += now - since
        if not is_read:
            self._idle_since[partition] = now
        if self.unread and self.unread[-1][0] == now:
            self.unread.pop()
        self.unread.append((now, len(self._idle_since)))


class World(Timeline):
    """Time, network and ledger."""

    def __init__(self, seed: int, partitions: int) -> None:
        super().__init__(seed, 1_700_000_000_000)
        self.ledger = Ledger()
        self.partitions = 0
        self.on_partitions: list[Callable[[], None]] = []
        self.grow(partitions)

    def grow(self, count: int) -> None:
        self.ledger.add_partitions(self.partitions, self.partitions + count, now=self.now)
        self.partitions += count
        for listener in self.on_partitions:
            listener()

    def latency(self) -> float:
        return self.random.uniform(1, 20)

    def send(self, size: int, deliver: Callable[[], None], *, is_notification: bool = False) -> None:
        """Count a message and deliver it a little later."""
        self.ledger.message(size, now=self.now, is_notification=is_notification)
        self.after(self.latency(), deliver)

    def answer(self, size: int, deliver: Callable[[], None]) -> None:
        """Deliver a response a little later. Only its bytes count: it belongs to a request."""
        self.ledger.size += size
        self.after(self.latency(), deliver)
