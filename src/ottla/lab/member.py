"""What all designs share: a process that crashes, pauses, is slow, or is cut off, and that reads partitions."""

from __future__ import annotations

from collections.abc import Callable

from ottla.lab.world import COMMIT, World
from ottla.types import Millis


class Process:
    """One consumer. A design says how it gets its partitions."""

    def __init__(self, world: World, name: str, identity: str) -> None:
        self.world = world
        self.name = name
        self.identity = identity
        """The owner of its partitions: a static member is the same after a restart."""
        self.is_alive = True
        self.paused_until: Millis = 0
        self.busy_until: Millis = 0
        self.cut_until: Millis = 0
        world.after(world.random.uniform(0, COMMIT), self._commit)

    @property
    def reads(self) -> bool:
        return self.is_alive and self.paused_until <= self.world.now

    @property
    def is_cut(self) -> bool:
        """Whether its messages about the group are lost."""
        return not self.is_alive or self.cut_until > self.world.now

    def may_commit(self, partition: int) -> bool:
        """Whether nobody would refuse its commits now."""
        raise NotImplementedError

    # ── what happens to it ────────────────────────────────────────────────────────────────────────────────────────

    def crash(self) -> None:
        self.drop(commits=False)
        self.is_alive = False

    def leave(self) -> None:
        """Close cleanly."""
        self.drop(commits=True)
        self.is_alive = False

    def pause(self, length: Millis) -> None:
        self.world.ledger.advance(self, now=self.world.now)
        self.paused_until = self.world.now + length
        self.world.ledger.changed(self, now=self.world.now)
        self.world.after(length, lambda: self.world.ledger.changed(self, now=self.world.now))

    def be_slow(self, length: Millis) -> None:
        self.busy_until = self.world.now + length

    def be_cut_off(self, length: Millis) -> None:
        self.cut_until = self.world.now + length

    # ── what it does ──────────────────────────────────────────────────────────────────────────────────────────────

    def take(self, partitions: set[int]) -> None:
        for partition in sorted(partitions):
            self.world.ledger.claim(self, partition, self.identity, now=self.world.now)

    def drop(self, partitions: set[int] | None = None, *, commits: bool) -> None:
        owned = set(self.world.ledger.owns(self))
        for partition in sorted(owned if partitions is None else owned & partitions):
            may = commits and self.may_commit(partition)
            self.world.ledger.release(self, partition, commits=may, now=self.world.now)

    def when_awake(self, task: Callable[[], None], *, polls: bool = False) -> None:
        """Do something now, or when the process goes on; with `polls`, when the application polls again."""
        until = max(self.paused_until, self.busy_until if polls else 0)
        if not self.is_alive:
            return
        if until > self.world.now:
            self.world.after(until - self.world.now, lambda: self.when_awake(task, polls=polls))
        else:
            task()

    def _commit(self) -> None:
        if self.is_alive:
            if self.reads and not self.is_cut:
                self.world.ledger.commit(self, now=self.world.now)
            self.world.after(COMMIT, self._commit)
