"""The runner: the journal before the state, the response after the commit, parked requests and timers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterator, Sequence

import pytest

from ottla import errors
from ottla.driver import RETRY_AFTER
from ottla.machine import Machine, Outcome, Parked, Timer
from ottla.runtime.runner import Runner
from ottla.testing import ManualClock
from ottla.types import Millis


class Counter(Machine[int]):
    """A machine that sums numbers and answers requests that wait for a total."""

    def __init__(self) -> None:
        self.total = 0
        self.waiting: dict[int, int] = {}

    def add(self, number: int, *, now: Millis) -> Outcome[int, int]:
        total = self.total + number
        ready = {token: total for token, wanted in self.waiting.items() if total >= wanted}
        return Outcome((number,), total, answers=ready)

    def wait_for(self, wanted: int, *, now: Millis) -> Outcome[int, int]:
        self.waiting[wanted] = wanted
        return Outcome((), Parked(wanted), timers=(Timer(wanted, now + 100),))

    def fire(self, key: Hashable, /, *, now: Millis) -> Outcome[int, None]:
        return Outcome((1000,), None, answers={key: -1})

    def replay(self, record: int, /) -> None:
        self.total += record


class SlowJournal:
    """A journal that commits on demand."""

    def __init__(self) -> None:
        self.records: list[int] = []
        self.commit = asyncio.Event()
        self.broken = False
        self.fails = False
        self.longest = 10

    def append(self, records: Sequence[int], /) -> int:
        if self.broken or len(records) > self.longest:
            raise OSError("disk full")
        self.records += records
        return len(self.records)

    def committed(self, position: int, /) -> asyncio.Future[None] | None:
        return None if self.commit.is_set() else asyncio.ensure_future(self._wait())

    async def _wait(self) -> None:
        await self.commit.wait()
        if self.fails:
            raise OSError("disk broken")


class Scene:
    """A runner with its machine, journal and clock."""

    def __init__(
        self, machine: Counter | None = None, *, commits: bool = True, commit_timeout: Millis | None = None
    ) -> None:
        self.machine, self.journal, self.clock = machine or Counter(), SlowJournal(), ManualClock()
        if commits:
            self.journal.commit.set()
        self.unwritten: list[Callable[[], None]] = []
        self.refused: list[tuple[str, str]] = []
        self.runner = Runner(self.machine, self.journal, self.clock, self.unwritten.append, commit_timeout)

    async def start(self, operation: Callable[..., Outcome[int, int]], *args: int) -> asyncio.Future[int]:
        """Start an operation; it may wait."""
        task = asyncio.ensure_future(self.runner.run(operation, *args))
        await asyncio.sleep(0)
        return task

    async def park(self, wanted: int = 6) -> asyncio.Future[int]:
        return await self.start(self.machine.wait_for, wanted)

    def advance(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)
        self.runner.fire_due(self.clock.now())

    def gather(self, number: int, name: str) -> None:
        self.runner.gather(self.machine.add, number, lambda error: self.refused.append((name, str(error))))


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.runner.close()


@pytest.fixture
def late() -> Iterator[Scene]:
    """A scene whose journal commits on demand."""
    scene = Scene(commits=False)
    yield scene
    scene.runner.close()


async def test_the_answer_leaves_only_when_the_records_are_committed(late: Scene) -> None:
    first, second = await late.start(late.machine.add, 5), await late.start(late.machine.add, 2)
    assert late.journal.records == [5, 2]
    assert not first.done()
    late.journal.commit.set()
    assert [await first, await second] == [5, 7]


async def test_a_write_that_fails_changes_nothing(scene: Scene) -> None:
    scene.journal.broken = True
    with pytest.raises(OSError, match="disk full"):
        await scene.runner.run(scene.machine.add, 5)
    assert scene.machine.total == 0


async def test_a_parked_request_is_answered_by_a_later_one(scene: Scene) -> None:
    parked = await scene.park()
    await scene.runner.run(scene.machine.add, 5)
    assert not parked.done()
    await scene.runner.run(scene.machine.add, 2)
    assert await parked == 7


async def test_a_parked_request_is_answered_though_the_one_that_answers_it_went_away(late: Scene) -> None:
    parked, adding = await late.park(), await late.start(late.machine.add, 7)
    adding.cancel()
    await asyncio.sleep(0)
    assert not parked.done()
    late.journal.commit.set()
    assert await parked == 7


async def test_a_parked_request_fails_with_the_commit_that_was_to_answer_it(late: Scene) -> None:
    late.journal.fails = True
    parked, adding = await late.park(), await late.start(late.machine.add, 7)
    late.journal.commit.set()
    for each in (adding, parked):
        with pytest.raises(OSError, match="disk broken"):
            await each


async def test_a_response_that_waits_too_long_for_its_commit_is_an_error() -> None:
    """The record stays, and nothing that depends on it leaves before it is committed."""
    scene = Scene(commits=False, commit_timeout=20)
    parked = await scene.park()
    first = await scene.start(scene.machine.add, 7)
    scene.clock.advance(20)
    for each in (first, parked):
        with pytest.raises(errors.CoordinatorNotAvailable, match="not on enough replicas after 20 ms"):
            await asyncio.wait_for(each, 30)
    assert scene.journal.records == [7]
    second = await scene.start(scene.machine.add, 2)
    await asyncio.sleep(0.05)
    assert not second.done(), "by the clock, its time is not over"
    scene.journal.commit.set()
    assert await second == 9
    scene.runner.close()


async def test_a_timer_fires_when_its_time_has_come(scene: Scene) -> None:
    parked = await scene.park()
    scene.advance(99)
    assert not parked.done()
    scene.advance(1)
    assert await parked == -1
    assert scene.machine.total == 1000


async def test_a_timer_that_is_due_comes_before_what_is_asked_even_if_the_event_loop_is_late(scene: Scene) -> None:
    parked = await scene.park(2_000)
    scene.clock.advance(99)
    assert scene.runner.begin(scene.machine.add, 5) == 5
    scene.clock.advance(1)
    assert scene.runner.begin(scene.machine.add, 2) == 1007
    assert await parked == -1
    scene.runner._set_timers(Outcome((), None, timers=(Timer("other", scene.clock.now() + 10),)))
    scene.clock.advance(10)
    scene.gather(1, "late")
    assert scene.journal.records == [5, 1000, 2, 1000]
    scene.runner.write()
    assert scene.machine.total == 2008


async def test_a_clock_that_is_set_forward_lets_nobody_be_late(scene: Scene) -> None:
    """The next members must find their sessions unchanged."""
    parked = await scene.park(2_000)
    scene.clock.step(60_000)
    assert await scene.runner.run(scene.machine.add, 5) == 5
    assert not parked.done()
    assert scene.journal.records == [5]


async def test_a_timer_whose_records_were_never_committed_fires_again(late: Scene) -> None:
    late.journal.fails = True
    parked = await late.park()
    late.advance(100)
    await asyncio.sleep(0)
    assert not parked.done()
    late.journal.commit.set()
    with pytest.raises(OSError, match="disk broken"):
        await parked
    late.advance(RETRY_AFTER)
    assert late.journal.records == [1000, 1000]


async def test_closing_fails_what_is_parked(scene: Scene) -> None:
    parked = await scene.park()
    scene.runner.close()
    with pytest.raises(errors.NotCoordinator):
        await parked


class Worried(Counter):
    """A machine that remembers more than it replays, and waits again after a failed append."""

    def append_failed(self, outcome: Outcome[int, object], /, *, now: Millis) -> Outcome[int, None]:
        return Outcome((), None, timers=(Timer("again", now + 50),), answers={6: -2})


async def test_a_machine_is_told_what_the_journal_did_not_take_and_those_that_wait_fail_with_it() -> None:
    scene = Scene(Worried())
    answered, failed = await scene.park(6), await scene.park(3)
    scene.journal.broken = True
    with pytest.raises(OSError, match="disk full"):
        await scene.runner.run(scene.machine.add, 4)
    with pytest.raises(OSError, match="disk full"):
        await failed
    assert await answered == -2
    scene.journal.broken = False
    scene.advance(50)
    assert scene.journal.records == [1000]
    scene.runner.close()


async def test_timers_of_what_the_journal_did_not_take_stay_as_they_were(scene: Scene) -> None:
    parked = await scene.park()
    scene.journal.broken = True
    with pytest.raises(OSError, match="disk full"):
        await scene.runner.run(lambda *, now: Outcome((1,), 1, timers=(Timer(6, None),)))
    scene.journal.broken = False
    scene.advance(100)
    assert await parked == -1


async def test_a_timer_whose_records_the_journal_did_not_take_fires_again(scene: Scene) -> None:
    parked = await scene.park()
    scene.journal.broken = True
    scene.advance(100)
    with pytest.raises(OSError, match="disk full"):
        await parked
    scene.journal.broken = False
    scene.advance(RETRY_AFTER)
    assert scene.machine.total == 1000


async def test_what_is_gathered_changes_nothing_until_it_is_written_together(scene: Scene) -> None:
    scene.gather(5, "first")
    scene.gather(2, "second")
    assert (scene.machine.total, scene.journal.records, len(scene.unwritten)) == (0, [], 1)
    scene.unwritten.pop()()
    assert (scene.machine.total, scene.journal.records, scene.refused, scene.runner.gathered) == (7, [5, 2], [], [])


@pytest.mark.parametrize(("longest", "written"), [(1, [5, 2]), (0, [])])
async def test_what_cannot_be_written_together_is_written_by_itself_or_refused(
    scene: Scene, longest: int, written: list[int]
) -> None:
    scene.journal.longest = longest
    scene.gather(5, "first")
    scene.gather(2, "second")
    scene.runner.write()
    assert (scene.machine.total, scene.journal.records) == (sum(written), written)
    assert scene.refused == ([] if written else [("first", "disk full"), ("second", "disk full")])


async def test_other_operations_and_timers_come_after_what_was_gathered(scene: Scene) -> None:
    scene.gather(5, "first")
    assert await scene.runner.run(scene.machine.add, 1) == 6
    scene.gather(2, "second")
    scene.runner.timers.set("due", 0)
    scene.runner.fire_due(scene.clock.now())
    assert scene.journal.records == [5, 1, 2, 1000]
    scene.unwritten.pop()()
    assert scene.journal.records == [5, 1, 2, 1000]


async def test_a_response_without_records_waits_for_the_records_that_it_may_depend_on(late: Scene) -> None:
    adding = await late.start(late.machine.add, 5)
    reading = await late.start(lambda *, now: Outcome((), late.machine.total))
    assert not reading.done()
    late.journal.commit.set()
    assert [await adding, await reading] == [5, 5]
    assert late.runner.is_committed
    assert late.runner.begin(lambda *, now: Outcome((), late.machine.total)) == 5


async def test_a_provisional_response_is_refused_if_its_records_are_not_committed_when_they_are_written(
    scene: Scene,
) -> None:
    scene.gather(5, "first")
    scene.gather(2, "second")
    scene.journal.commit.clear()
    scene.runner.write()
    assert [name for name, _ in scene.refused] == ["first", "second"]
    assert scene.machine.total == 7
    scene.journal.commit.set()
    while not scene.runner.is_committed:
        await asyncio.sleep(0)
