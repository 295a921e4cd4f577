"""The two old designs over ZooKeeper: *watchers*, where every consumer decides alone, and *server*.

In *watchers* each consumer registers in ``/ids``, watches it, and at each change releases its partitions, reads all
registrations, computes its share and claims it by creating nodes in ``/owners``. If a node is taken it waits and tries
again. Offsets are written without a check, so a consumer whose session has expired can still write.

In *server* consumers register too, but only a coordinator watches. It stops the members, waits until they have stopped
or are gone, and tells each its share, with a generation. Commits go through it, so it can refuse old generations.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ottla.lab.member import Process
from ottla.lab.world import World
from ottla.lab.zookeeper import Session, ZooKeeper
from ottla.types import Millis

IDS, OWNERS, BROKERS = "/ids", "/owners", "/brokers"
BACK_OFF: Millis = 2_000
RETRIES = 4
MESSAGE = 60


def share(members: list[str], partitions: int) -> dict[str, set[int]]:
    """Contiguous ranges, as both designs used them.

    >>> share(["a", "b"], 3)
    {'a': {0, 1}, 'b': {2}}
    """
    each, more = divmod(partitions, len(members))
    shares, first = {}, 0
    for place, member in enumerate(sorted(members)):
        last = first + each + (place < more)
        shares[member] = set(range(first, last))
        first = last
    return shares


class Registration:
    """The node of a member in ``/ids``. A member that lost its session registers again when it has contact."""

    def __init__(
        self,
        member: Process,
        zookeeper: ZooKeeper,
        *,
        registered: Callable[[], None] = lambda: None,
        watched: Callable[[str], None] = lambda path: None,
    ) -> None:
        self._member = member
        self._zookeeper = zookeeper
        self._registered = registered
        self._watched = watched
        self.session = self._register()
        self._look()

    def _register(self) -> Session:
        session = Session(self._zookeeper, self._member, self._watched)
        session.create(f"{IDS}/{self._member.name}", self._member.name, lambda _: self._registered())
        return session

    def _look(self) -> None:
        """Notice the end of the session."""
        member = self._member
        if not member.is_alive:
            return
        if member.reads and not member.is_cut and self.session.is_expired:
            member.drop(commits=False)
            self.session = self._register()
        member.world.after(500, self._look)


class Watcher(Process):
    """A consumer that decides alone."""

    def __init__(self, world: World, zookeeper: ZooKeeper, name: str) -> None:
        super().__init__(world, name, name)
        self._attempt = 0
        self._is_busy = self._is_due = False
        self._registration = Registration(self, zookeeper, registered=self._begin, watched=self._watched)

    @property
    def session(self) -> Session:
        return self._registration.session

    def may_commit(self, partition: int) -> bool:
        return self.is_alive  # Nobody checks.

    def leave(self) -> None:
        super().leave()
        self.session.end()

    def _watched(self, path: str) -> None:
        self._is_due = True
        if not self._is_busy:
            self._begin()

    def _begin(self) -> None:
        self._attempt = 0
        self.when_awake(self._rebalance, polls=True)

    def _rebalance(self) -> None:
        self._is_busy, self._is_due = True, False
        self._attempt += 1
        owned = self.world.ledger.owns(self)
        self.drop(commits=True)
        self.session.delete([f"{OWNERS}/{number}" for number in owned])
        self.session.children(BROKERS, lambda _: None)
        self.session.children(IDS, self._found)

    def _found(self, ids: list[str]) -> None:
        self.session.read_all([f"{IDS}/{one}" for one in ids], lambda _: self._claim(ids))

    def _claim(self, ids: list[str]) -> None:
        mine = share(ids, self.world.partitions)[self.name] if self.name in ids else set()
        taken: set[int] = set()
        left = set(mine)
        if not mine:
            self._end()
            return

        def answered(number: int, is_mine: bool) -> None:
            left.discard(number)
            if is_mine:
                taken.add(number)
            if left:
                return
            if taken == mine:
                self.take(mine)
                self._end()
            else:
                self.session.delete([f"{OWNERS}/{one}" for one in taken])
                self._again()

        for number in sorted(mine):
            path = f"{OWNERS}/{number}"
            self.session.create(path, self.name, partial(answered, number))

    def _again(self) -> None:
        if self._attempt < RETRIES or self._is_due:
            self._attempt = 0 if self._is_due else self._attempt
            self.world.after(BACK_OFF, lambda: self.when_awake(self._rebalance, polls=True))
        else:
            self._end()

    def _end(self) -> None:
        self._is_busy = False
        if self._is_due:
            self._begin()


class Assigner(Process):
    """The coordinator of the design *server*."""

    def __init__(self, world: World, zookeeper: ZooKeeper) -> None:
        super().__init__(world, "coordinator", "coordinator")
        self.zookeeper = zookeeper
        self.members: dict[str, ServedMember] = {}
        self.generation = 0
        self._waits_for: set[str] = set()
        self._is_due = False
        self._found: list[str] = []
        self._contact()
        world.on_partitions.append(lambda: self._watched(IDS))

    def may_commit(self, partition: int) -> bool:
        return False

    def fail(self, length: Millis) -> None:
        """Die. Another coordinator takes over when the session has expired."""
        self.pause(length)
        self._waits_for.clear()
        self.world.after(length, self._contact)

    def _contact(self) -> None:
        self.session = Session(self.zookeeper, self, self._watched)
        self._watched(IDS)

    def _watched(self, path: str) -> None:
        self._is_due = True
        if not self._waits_for:
            self._begin()

    def _begin(self) -> None:
        self._is_due = False
        self.session.children(IDS, self._stop)

    def _stop(self, ids: list[str]) -> None:
        """Ask all members to stop, and wait for those that are registered."""
        self._found = [one for one in ids if one in self.members]
        self._waits_for = set(self._found)
        for name in self._found:
            self.world.send(MESSAGE, self.members[name].stop)
        self._give_up(self.generation)
        if not self._found:
            self._waits_for = set()

    def _give_up(self, generation: int) -> None:
        """Go on without members whose registration is gone."""
        if generation != self.generation or not self._waits_for:
            return
        gone = {one for one in self._waits_for if f"{IDS}/{one}" not in self.zookeeper.nodes}
        for one in sorted(gone):
            self.stopped(one)
        self.world.after(500, lambda: self._give_up(generation))

    def stopped(self, name: str) -> None:
        """A member has stopped, or is gone."""
        if not self.reads or name not in self._waits_for:
            return
        self._waits_for.discard(name)
        if self._waits_for:
            return
        self.generation += 1
        here = [one for one in self._found if f"{IDS}/{one}" in self.zookeeper.nodes]
        shares = share(here, self.world.partitions) if here else {}
        for member, numbers in shares.items():
            size = MESSAGE + 4 * len(numbers)
            self.world.send(size, partial(self.members[member].begin, numbers, self.generation))
        if self._is_due:
            self._begin()


class ServedMember(Process):
    """A consumer that a coordinator tells what to read."""

    def __init__(self, world: World, zookeeper: ZooKeeper, name: str, coordinator: Assigner) -> None:
        super().__init__(world, name, name)
        self._coordinator = coordinator
        self._generation = -1
        coordinator.members[name] = self
        self._registration = Registration(self, zookeeper)

    def leave(self) -> None:
        super().leave()
        self._registration.session.end()

    def may_commit(self, partition: int) -> bool:
        return self._coordinator.reads and self._generation == self._coordinator.generation

    def stop(self) -> None:
        if not self.is_cut:
            self.when_awake(self._stop, polls=True)

    def _stop(self) -> None:
        self.drop(commits=True)
        self.world.answer(MESSAGE, lambda: self._coordinator.stopped(self.name))

    def begin(self, numbers: set[int], generation: int) -> None:
        def take() -> None:
            if generation == self._coordinator.generation:
                self.drop(commits=False)
                self._generation = generation
                self.take(numbers)

        if not self.is_cut:
            self.when_awake(take)
