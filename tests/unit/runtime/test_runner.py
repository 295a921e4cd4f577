"""The runner: the journal before the state, the response after the commit, parked requests and timers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence

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

    def append(self, records: Sequence[int], /) -> int:
        if self.broken:
            raise OSError("disk full")
        self.records += records
        return len(self.records)

    def committed(self, position: int, /) -> asyncio.Future[None] | None:
        return None if self.commit.is_set() else asyncio.ensure_future(self._wait())

    async def _wait(self) -> None:
        await self.commit.wait()
        if self.fails:
            raise OSError("disk broken")


def test_the_answer_leaves_only_when_the_records_are_committed() -> None:
    async def scenario() -> None:
        machine, journal = Counter(), SlowJournal()
        runner = Runner(machine, journal, ManualClock())
        first = asyncio.ensure_future(runner.run(machine.add, 5))
        second = asyncio.ensure_future(runner.run(machine.add, 2))
        await asyncio.sleep(0)
        assert journal.records == [5, 2]
        assert not first.done()
        journal.commit.set()
        assert [await first, await second] == [5, 7]

    asyncio.run(scenario())


def test_a_write_that_fails_changes_nothing() -> None:
    async def scenario() -> None:
        machine, journal = Counter(), SlowJournal()
        journal.broken = True
        with pytest.raises(OSError, match="disk full"):
            await Runner(machine, journal, ManualClock()).run(machine.add, 5)
        assert machine.total == 0

    asyncio.run(scenario())


def test_a_parked_request_is_answered_by_a_later_one() -> None:
    async def scenario() -> None:
        machine, journal = Counter(), SlowJournal()
        journal.commit.set()
        runner = Runner(machine, journal, ManualClock())
        parked = asyncio.ensure_future(runner.run(machine.wait_for, 6))
        await asyncio.sleep(0)
        await runner.run(machine.add, 5)
        assert not parked.done()
        await runner.run(machine.add, 2)
        assert await parked == 7
        runner.close()

    asyncio.run(scenario())


def test_a_parked_request_is_answered_though_the_one_that_answers_it_went_away() -> None:
    async def scenario() -> None:
        machine, journal = Counter(), SlowJournal()
        runner = Runner(machine, journal, ManualClock())
        parked = asyncio.ensure_future(runner.run(machine.wait_for, 6))
        await asyncio.sleep(0)
        adding = asyncio.ensure_future(runner.run(machine.add, 7))
        await asyncio.sleep(0)
        adding.cancel()
        await asyncio.sleep(0)
        assert not parked.done()
        journal.commit.set()
        assert await parked == 7
        runner.close()

    asyncio.run(scenario())


def test_a_parked_request_fails_with_the_commit_that_was_to_answer_it() -> None:
    async def scenario() -> None:
        machine, journal = Counter(), SlowJournal()
        journal.fails = True
        runner = Runner(machine, journal, ManualClock())
        parked = asyncio.ensure_future(runner.run(machine.wait_for, 6))
        await asyncio.sleep(0)
        adding = asyncio.ensure_future(runner.run(machine.add, 7))
        await asyncio.sleep(0)
        journal.commit.set()
        for each in (adding, parked):
            with pytest.raises(OSError, match="disk broken"):
                await each
        runner.close()

    asyncio.run(scenario())


def test_a_timer_fires_when_its_time_has_come() -> None:
    async def scenario() -> None:
        machine, journal, clock = Counter(), SlowJournal(), ManualClock()
        journal.commit.set()
        runner = Runner(machine, journal, clock)
        parked = asyncio.ensure_future(runner.run(machine.wait_for, 6))
        await asyncio.sleep(0)
        clock.advance(99)
        runner.fire_due(clock.now())
        assert not parked.done()
        clock.advance(1)
        runner.fire_due(clock.now())
        assert await parked == -1
        assert machine.total == 1000
        runner.close()

    asyncio.run(scenario())


def test_a_timer_that_is_due_comes_before_what_is_asked_even_if_the_event_loop_is_late() -> None:
    async def scenario() -> None:
        each, clock = Gatherer(), ManualClock()
        runner = Runner(each.machine, each.journal, clock, each.unwritten.append)
        parked = asyncio.ensure_future(runner.run(each.machine.wait_for, 2_000))
        await asyncio.sleep(0)
        clock.advance(99)
        assert runner.begin(each.machine.add, 5) == 5
        clock.advance(1)
        assert runner.begin(each.machine.add, 2) == 1007
        assert await parked == -1
        runner._set_timers(Outcome((), None, timers=(Timer("other", clock.now() + 10),)))
        clock.advance(10)
        runner.gather(each.machine.add, 1, print)
        assert each.journal.records == [5, 1000, 2, 1000]
        runner.write()
        assert each.machine.total == 2008
        runner.close()

    asyncio.run(scenario())


def test_a_clock_that_is_set_forward_lets_nobody_be_late() -> None:
    """The next members must find their sessions unchanged."""

    async def scenario() -> None:
        machine, clock = Counter(), ManualClock()
        journal = SlowJournal()
        journal.commit.set()
        runner = Runner(machine, journal, clock)
        parked = asyncio.ensure_future(runner.run(machine.wait_for, 2_000))
        await asyncio.sleep(0)
        clock.step(60_000)
        assert await runner.run(machine.add, 5) == 5
        assert not parked.done()
        assert journal.records == [5]
        runner.close()
        with pytest.raises(errors.NotCoordinator):
            await parked

    asyncio.run(scenario())


def test_a_timer_whose_records_were_never_committed_fires_again() -> None:
    async def scenario() -> None:
        machine, journal, clock = Counter(), SlowJournal(), ManualClock()
        journal.fails = True
        runner = Runner(machine, journal, clock)
        parked = asyncio.ensure_future(runner.run(machine.wait_for, 6))
        await asyncio.sleep(0)
        clock.advance(100)
        runner.fire_due(clock.now())
        await asyncio.sleep(0)
        assert not parked.done()
        journal.commit.set()
        with pytest.raises(OSError, match="disk broken"):
            await parked
        clock.advance(RETRY_AFTER)
        runner.fire_due(clock.now())
        assert journal.records == [1000, 1000]
        runner.close()

    asyncio.run(scenario())


def test_closing_fails_what_is_parked() -> None:
    async def scenario() -> None:
        machine = Counter()
        runner = Runner(machine, SlowJournal(), ManualClock())
        parked = asyncio.ensure_future(runner.run(machine.wait_for, 6))
        await asyncio.sleep(0)
        runner.close()
        with pytest.raises(errors.NotCoordinator):
            await parked

    asyncio.run(scenario())


class Worried(Counter):
    """A machine that remembers more than it replays, and waits again after a failed append."""

    def append_failed(self, outcome: Outcome[int, object], /, *, now: Millis) -> Outcome[int, None]:
        return Outcome((), None, timers=(Timer("again", now + 50),), answers={6: -2})


def test_a_machine_is_told_what_the_journal_did_not_take_and_those_that_wait_fail_with_it() -> None:
    async def scenario() -> None:
        machine, journal, clock = Worried(), SlowJournal(), ManualClock()
        journal.commit.set()
        runner = Runner(machine, journal, clock)
        answered = asyncio.ensure_future(runner.run(machine.wait_for, 6))
        failed = asyncio.ensure_future(runner.run(machine.wait_for, 3))
        await asyncio.sleep(0)
        journal.broken = True
        with pytest.raises(OSError, match="disk full"):
            await runner.run(machine.add, 4)
        with pytest.raises(OSError, match="disk full"):
            await failed
        assert await answered == -2
        journal.broken = False
        clock.advance(50)
        runner.fire_due(clock.now())
        assert journal.records == [1000]
        runner.close()

    asyncio.run(scenario())


def test_timers_of_what_the_journal_did_not_take_stay_as_they_were() -> None:
    async def scenario() -> None:
        machine, journal, clock = Counter(), SlowJournal(), ManualClock()
        journal.commit.set()
        runner = Runner(machine, journal, clock)
        parked = asyncio.ensure_future(runner.run(machine.wait_for, 6))
        await asyncio.sleep(0)
        journal.broken = True
        with pytest.raises(OSError, match="disk full"):
            await runner.run(lambda *, now: Outcome((1,), 1, timers=(Timer(6, None),)))
        journal.broken = False
        clock.advance(100)
        runner.fire_due(clock.now())
        assert await parked == -1
        runner.close()

    asyncio.run(scenario())


def test_a_timer_whose_records_the_journal_did_not_take_fires_again() -> None:
    async def scenario() -> None:
        machine, journal, clock = Counter(), SlowJournal(), ManualClock()
        journal.commit.set()
        runner = Runner(machine, journal, clock)
        parked = asyncio.ensure_future(runner.run(machine.wait_for, 6))
        await asyncio.sleep(0)
        journal.broken = True
        clock.advance(100)
        runner.fire_due(clock.now())
        with pytest.raises(OSError, match="disk full"):
            await parked
        journal.broken = False
        clock.advance(RETRY_AFTER)
        runner.fire_due(clock.now())
        assert machine.total == 1000
        runner.close()

    asyncio.run(scenario())


class ShortJournal(SlowJournal):
    """A journal with a limit on records per append."""

    longest = 10

    def append(self, records: Sequence[int], /) -> int:
        if len(records) > self.longest:
            raise OSError("too long")
        return super().append(records)


class Gatherer:
    """A runner that gathers, and its rejected requests."""

    def __init__(self) -> None:
        self.machine, self.journal, self.clock = Counter(), ShortJournal(), ManualClock()
        self.journal.commit.set()
        self.unwritten: list[Callable[[], None]] = []
        self.failed: list[tuple[str, str]] = []
        self.runner = Runner(self.machine, self.journal, self.clock, self.unwritten.append)

    def gather(self, number: int, name: str) -> None:
        self.runner.gather(self.machine.add, number, lambda error: self.failed.append((name, str(error))))


def test_what_is_gathered_changes_nothing_until_it_is_written_together() -> None:
    each = Gatherer()
    each.gather(5, "first")
    each.gather(2, "second")
    assert (each.machine.total, each.journal.records, len(each.unwritten)) == (0, [], 1)
    each.unwritten.pop()()
    assert (each.machine.total, each.journal.records, each.failed, each.runner.gathered) == (7, [5, 2], [], [])


def test_what_cannot_be_written_together_is_written_by_itself() -> None:
    each = Gatherer()
    each.journal.longest = 1
    each.gather(5, "first")
    each.gather(2, "second")
    each.runner.write()
    assert (each.machine.total, each.journal.records, each.failed) == (7, [5, 2], [])


def test_everybody_is_told_when_nothing_can_be_written() -> None:
    each = Gatherer()
    each.journal.broken = True
    each.gather(5, "first")
    each.gather(2, "second")
    each.runner.write()
    assert each.failed == [("first", "disk full"), ("second", "disk full")]
    assert (each.machine.total, each.journal.records) == (0, [])


def test_other_operations_and_timers_come_after_what_was_gathered() -> None:
    async def scenario() -> None:
        each = Gatherer()
        each.gather(5, "first")
        assert await each.runner.run(each.machine.add, 1) == 6
        each.gather(2, "second")
        each.runner.timers.set("due", 0)
        each.runner.fire_due(each.clock.now())
        assert each.journal.records == [5, 1, 2, 1000]
        each.unwritten.pop()()
        assert each.journal.records == [5, 1, 2, 1000]

    asyncio.run(scenario())


def test_a_response_without_records_waits_for_the_records_that_it_may_depend_on() -> None:
    async def scenario() -> None:
        machine, journal = Counter(), SlowJournal()
        runner = Runner(machine, journal, ManualClock())
        adding = asyncio.ensure_future(runner.run(machine.add, 5))
        await asyncio.sleep(0)
        reading = asyncio.ensure_future(runner.run(lambda *, now: Outcome((), machine.total)))
        await asyncio.sleep(0)
        assert not reading.done()
        journal.commit.set()
        assert [await adding, await reading] == [5, 5]
        assert runner.is_committed
        assert runner.begin(lambda *, now: Outcome((), machine.total)) == 5

    asyncio.run(scenario())


def test_a_provisional_response_is_refused_if_its_records_are_not_committed_when_they_are_written() -> None:
    async def scenario() -> None:
        each = Gatherer()
        each.gather(5, "first")
        each.gather(2, "second")
        each.journal.commit.clear()
        each.runner.write()
        assert [name for name, _ in each.failed] == ["first", "second"]
        assert each.machine.total == 7
        each.journal.commit.set()
        while not each.runner.is_committed:
            await asyncio.sleep(0)

    asyncio.run(scenario())
