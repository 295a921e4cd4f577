"""The runner of a machine: run → append → replay → wait until committed → answer.

The journal is written before the state changes, so that a write that fails changes nothing; the answer leaves only when
the journal says that the records are committed. Parked requests are futures here, and nowhere else. A machine that
remembers what it decided, beside what it replays, is told by its ``append_failed`` when the journal did not take it.

The records of many operations can be gathered and written as one batch. Their answers hold only then: they must not
leave before `Runner.write`, which waits to be called in ``unwritten``. Whatever else is asked comes after it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ottla.machine import Machine, Outcome, Parked
from ottla.runtime.clock import Clock
from ottla.runtime.timers import TimerQueue
from ottla.types import Millis

logger = logging.getLogger("ottla.runtime")
RETRY_AFTER: Millis = 500
"""When a timer fires again that could not be served; as Kafka's do."""
Record = TypeVar("Record")
ContraRecord = TypeVar("ContraRecord", contravariant=True)
Response = TypeVar("Response")


class Gathering(NamedTuple, Generic[Record]):
    """What a runner that gathers needs more."""

    unwritten: list[Callable[[], None]]
    """Has the runner's `write` while there is something to write."""
    join: Callable[[list[Any]], Sequence[Record]]
    """Makes one sequence of the records of several operations."""
    replay: Callable[[Any], None]
    """Replays the records of one operation."""
    failed: Callable[[Any, Exception], None]
    """Tells an asker."""


class Journal(Protocol[ContraRecord]):
    """Where records go: a log partition, or a file."""

    def append(self, records: Sequence[ContraRecord], /) -> int:
        """Write records at once and return the position after them; an error means that nothing was written."""

    def committed(self, position: int, /) -> Awaitable[None] | None:
        """Return None if everything before the position is safe already, else something to wait for."""


class AppendFailed(Protocol[Record]):
    """What a machine says when the records of an outcome were not taken: timers and answers, never records."""

    def __call__(self, outcome: Outcome[Record, Any], /, *, now: Millis) -> Outcome[Record, None]: ...


class Runner(Generic[Record]):
    """Drives one machine. All calls come from the event loop's thread."""

    def __init__(
        self,
        machine: Machine[Record],
        journal: Journal[Record],
        clock: Clock,
        append_failed: AppendFailed[Record] | None = None,
        gathering: Gathering[Record] | None = None,
    ) -> None:
        self._machine = machine
        self._journal = journal
        self._clock = clock
        self._append_failed = append_failed
        self._gathering = gathering
        self.gathered: list[tuple[Outcome[Record, Any], Any]] = []
        """What was decided and is not written yet, and who is told if it cannot be."""
        self._timers = TimerQueue()
        self._wakeup: asyncio.TimerHandle | None = None
        self._wakes_at: Millis = 0
        self._late_from: Millis = 0
        """When the event loop should have called, by the time that passes: a clock that is set makes nobody late."""
        self._parked: dict[Hashable, asyncio.Future[Any]] = {}
        self._answering: set[asyncio.Future[None]] = set()
        self._firing: set[asyncio.Future[None]] = set()

    async def run(self, operation: Callable[..., Outcome[Record, Response]], /, *args: Any, **kwargs: Any) -> Response:
        """Run ``operation(*args, **kwargs, now=…)`` of the machine and return its response once it is safe."""
        begun = self.begin(operation, *args, **kwargs)
        return await begun if isinstance(begun, asyncio.Future) else begun

    def begin(
        self, operation: Callable[..., Outcome[Record, Response]], /, *args: Any, **kwargs: Any
    ) -> Response | asyncio.Future[Response]:
        """The same without a coroutine: return the response if it is safe at once, else a future of it."""
        now = self.time()
        if self.gathered:
            self.write()
        outcome = operation(*args, **kwargs, now=now)
        response = outcome.response
        if not isinstance(response, Parked):
            if (pending := self._apply(outcome)) is not None:
                return asyncio.ensure_future(_after(pending, response))
            return response
        # The token is taken before the first wait: the answer may come while the records are being committed.
        waiting: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._parked[response.token] = waiting
        if (pending := self._apply(outcome)) is not None:
            return asyncio.ensure_future(_after_both(pending, waiting))
        return waiting

    def gather(
        self, operation: Callable[..., Outcome[Record, Response]], request: Any, asker: Any
    ) -> Response | Parked:
        """Run an operation that answers nobody but the asker. The response holds unless `write` says that it failed."""
        assert self._gathering is not None
        outcome = operation(request, now=self.time())
        if outcome.timers:
            self._set_timers(outcome)
        if outcome.records:
            if not self.gathered:
                self._gathering.unwritten.append(self.write)
            self.gathered.append((outcome, asker))
        return outcome.response

    def write(self) -> None:
        """Write what was gathered as one batch; if that cannot be, the records of each operation by themselves."""
        gathered, self.gathered = self.gathered, []
        assert self._gathering is not None
        _, join, replay, failed = self._gathering
        if len(gathered) > 1:
            try:
                self._journal.append(join([outcome.records for outcome, _ in gathered]))
            except Exception:
                logger.warning("what was gathered could not be written together", exc_info=True)
            else:
                for outcome, _ in gathered:
                    replay(outcome.records)
                return
        for outcome, asker in gathered:
            try:
                self._journal.append(outcome.records)
            except Exception as error:
                self.not_appended(outcome, error)
                failed(asker, error)
            else:
                replay(outcome.records)

    def _apply(self, outcome: Outcome[Record, Any]) -> Awaitable[None] | None:
        """Do what was decided; return None if that is all, else what to wait for until it is committed."""
        position = self._append(outcome) if outcome.records else 0
        if outcome.timers:
            self._set_timers(outcome)
        if outcome.records and (pending := self._journal.committed(position)) is not None:
            # Whoever asked may go away meanwhile; others may wait for the same records.
            answering = asyncio.ensure_future(self._answer_after(pending, outcome))
            self._answering.add(answering)
            answering.add_done_callback(self._answering.discard)
            return asyncio.shield(answering)
        if outcome.answers:
            self._answer(outcome)
        return None

    def _append(self, outcome: Outcome[Record, Any]) -> int:
        try:
            position = self._journal.append(outcome.records)
        except Exception as error:
            self.not_appended(outcome, error)
            raise
        for record in outcome.records:
            self._machine.replay(record)
        return position

    def not_appended(self, outcome: Outcome[Record, Any], error: Exception) -> None:
        """The journal did not take the records of an outcome: let who waits for it fail, and the machine go on."""
        self._fail(outcome, error)
        if self._append_failed is not None:
            instead = self._append_failed(outcome, now=self._clock.now())
            assert not instead.records
            self._set_timers(instead)
            self._answer(instead)

    async def _answer_after(self, pending: Awaitable[None], outcome: Outcome[Record, Any]) -> None:
        try:
            await pending
        except Exception as error:
            self._fail(outcome, error)
            raise
        self._answer(outcome)

    def _answer(self, outcome: Outcome[Record, Any]) -> None:
        for token, answer in outcome.answers.items():
            if (future := self._parked.pop(token, None)) is not None and not future.done():
                future.set_result(answer)

    def _fail(self, outcome: Outcome[Record, Any], error: Exception) -> None:
        """Let everybody fail whose answer cannot be written down; they try again."""
        for token in outcome.answers:
            if (future := self._parked.pop(token, None)) is not None and not future.done():
                future.set_exception(error)
        if isinstance(outcome.response, Parked):
            self._parked.pop(outcome.response.token, None)

    def _set_timers(self, outcome: Outcome[Record, Any]) -> None:
        for timer in outcome.timers:
            if timer.at is None:
                self._timers.cancel(timer.key)
            else:
                self._timers.set(timer.key, timer.at)
        self._arm()

    def _arm(self) -> None:
        deadline = self._timers.next_deadline()
        # Deadlines mostly move away, with every heartbeat: being woken too early now and then is cheaper than that.
        if deadline is None or (self._wakeup is not None and self._wakes_at <= deadline):
            return
        if self._wakeup is not None:
            self._wakeup.cancel()
        delay = max(0, deadline - self._clock.now())
        self._wakes_at, self._late_from = deadline, self._clock.elapsed() + delay
        self._wakeup = asyncio.get_running_loop().call_later(delay / 1000, self._woken)

    def time(self) -> Millis:
        """Return the time of what is asked now. Timers that are due by then come first: a busy event loop is late."""
        now = self._clock.now()
        if self._wakeup is not None and self._late_from <= self._clock.elapsed():
            self._wakeup.cancel()
            self._fire(now)
        return now

    def _woken(self) -> None:
        self._fire(self._clock.now())

    def _fire(self, now: Millis) -> None:
        self._wakeup = None
        for firing in self._fire_due(now):
            self._firing.add(firing)
            firing.add_done_callback(self._firing.discard)

    async def fire_due(self) -> None:
        """Fire every timer whose time has come, and wait until what came of it is committed."""
        await asyncio.gather(*self._fire_due(self._clock.now()))

    def _fire_due(self, now: Millis) -> list[asyncio.Future[None]]:
        """Fire every timer whose time has come; return those that are not committed yet."""
        pending = {}
        for key in list(self._timers.due(now=now)):
            try:
                if self.gathered:
                    self.write()
                pending[key] = self._apply(self._machine.fire(key, now=now))
            except Exception:
                self._fire_again(key, now)
        self._arm()
        return [asyncio.ensure_future(self._fired(key, each, now)) for key, each in pending.items() if each is not None]

    async def _fired(self, key: Hashable, pending: Awaitable[None], now: Millis) -> None:
        try:
            await pending
        except Exception:
            self._fire_again(key, now)
            self._arm()

    def _fire_again(self, key: Hashable, now: Millis) -> None:
        """The timer that fired at a time could not be served."""
        logger.exception("a timer could not be served; it is tried again")
        self._timers.set(key, now + RETRY_AFTER)

    def close(self) -> None:
        """Stop the timers and cancel what is parked."""
        if self._wakeup is not None:
            self._wakeup.cancel()
            self._wakeup = None
        for future in (*self._parked.values(), *self._answering):
            future.cancel()
        self._parked.clear()


async def _after(pending: Awaitable[None], response: Response) -> Response:
    await pending
    return response


async def _after_both(pending: Awaitable[None], waiting: Awaitable[Response]) -> Response:
    await pending
    return await waiting
