"""The driver of a state machine: run → append → replay → wait until committed → answer.

The driver has no event loop. It reaches the outside through four ports: a `Journal`, a `Clock`, ``call_later`` for
wake-ups and ``new_reply`` for responses that come later. The broker (`runtime/runner.py`), the simulation and the unit
tests use this same class with different ports. The rules:

- Records are appended before they are replayed. An append that fails changes no logged state.
- No response leaves before the records it depends on are committed. A response without records of its own waits for
  the records that were appended before it, because it may depend on them.
- Timers that are due fire before new work, even if the event loop is late.
- A response that waits too long for its records becomes an error (``commit_timeout``). The records stay, and may be
  committed later. Until they are, the responses after it wait too.
- The records of many operations can be gathered and written as one batch. Their responses are provisional: the caller
  must not send them before `Driver.write` has run. Everything else comes after that write.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from ottla import errors
from ottla.machine import Machine, Outcome, Parked
from ottla.timers import TimerQueue
from ottla.types import Millis

logger = logging.getLogger("ottla.driver")
RETRY_AFTER: Millis = 500
"""How long a timer waits after a failed attempt, as in Kafka."""
Record = TypeVar("Record")
ContraRecord = TypeVar("ContraRecord", contravariant=True)
Response = TypeVar("Response")


class Commit(Protocol):
    """Records on their way to being committed. An `asyncio.Future` is one."""

    def add_done_callback(self, callback: Callable[[Any], object], /) -> object:
        """Call back once the records are committed or lost."""

    def exception(self) -> BaseException | None:
        """Return why the records were not committed, or None."""


class Journal(Protocol[ContraRecord]):
    """Where records go: a log partition, or a file."""

    def append(self, records: Sequence[ContraRecord], /) -> int:
        """Write a batch and return the position after it. An error means that nothing was written."""

    def committed(self, position: int, /) -> Commit | None:
        """Return None if everything before the position is committed, else what to wait for."""


class Clock(Protocol):
    """A source of time."""

    def now(self) -> Millis:
        """Return milliseconds since the epoch."""

    def elapsed(self) -> Millis:
        """Return milliseconds that passed since some start. Setting the clock does not change it."""


class Reply(Protocol):
    """A response that comes later. An `asyncio.Future` is one."""

    def done(self) -> bool:
        """Whether nobody waits any more."""

    def set_result(self, result: Any, /) -> None: ...

    def set_exception(self, exception: Exception, /) -> None: ...


class Wakeup(Protocol):
    """A call that was asked for with ``call_later``."""

    def cancel(self) -> object: ...


CallLater = Callable[[Millis, Callable[[], None]], Wakeup]
Refuse = Callable[[Exception], object]
"""Replaces a provisional response by an error, because its records were not written."""


class Driver(Generic[Record]):
    """Drives one machine over one journal, from one thread."""

    def __init__(
        self,
        machine: Machine[Record],
        journal: Journal[Record],
        clock: Clock,
        *,
        call_later: CallLater,
        new_reply: Callable[[], Any],
        before_send: Callable[[Callable[[], None]], object] | None = None,
        commit_timeout: Millis | None = None,
    ) -> None:
        """``before_send(write)`` must have ``write`` called before the next response is sent; gathering needs it."""
        self._machine = machine
        self._journal = journal
        self._clock = clock
        self._call_later = call_later
        self._new_reply = new_reply
        self._before_send = before_send
        self.gathered: list[tuple[Outcome[Record, Any], Refuse]] = []
        """Decided, but not written yet."""
        self.timers = TimerQueue()
        self._wakeup: Wakeup | None = None
        self._wakes_at: Millis = 0
        self._late_from: Millis = 0
        """When the wake-up should have come, in elapsed time: setting the clock makes no timer late."""
        self._parked: dict[Hashable, Reply] = {}
        self._uncommitted: Commit | None = None
        """The last append that is not committed yet."""
        self._commit_timeout = commit_timeout
        self._waits: dict[object, tuple[Millis, Refuse]] = {}
        """What waits for a commit within the timeout, in order: until when, in elapsed time, and how to refuse it."""
        self._next_refusal: Wakeup | None = None
        self._is_closed = False

    # ── operations ────────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, operation: Callable[..., Outcome[Record, Response]], /, *args: Any, **kwargs: Any) -> Any:
        """Run ``operation(*args, **kwargs, now=…)``. Return its response if that may leave now, else a reply."""
        now = self.time()
        if self.gathered:
            self.write()
        outcome = operation(*args, **kwargs, now=now)
        response = outcome.response
        if isinstance(response, Parked):
            self._apply(outcome)  # If it raises, nobody waits for a reply.
            reply = self._parked[response.token] = self._new_reply()
            return reply
        pending = self._apply(outcome)
        if pending is None:
            return response
        reply = self._new_reply()
        self._when_committed(pending, partial(_settle, reply, response), partial(_refuse, reply))
        return reply

    def write_through(self, append: Callable[[], int], replay: Callable[[], None]) -> Commit | None:
        """Append and replay something other than an outcome; return what to wait for until it is committed."""
        self.settle()
        position = append()
        replay()
        return self._wait_for(position)

    @property
    def is_committed(self) -> bool:
        """Whether everything that was appended is committed, so that responses may leave at once."""
        return self._uncommitted is None

    # ── gathering ─────────────────────────────────────────────────────────────────────────────────────────────────

    def gather(
        self, operation: Callable[..., Outcome[Record, Response]], request: Any, refuse: Refuse
    ) -> Response | Parked:
        """Run an operation that answers only its own request, and write its records together with others.

        The response is provisional until `write`. The journal must commit at once (`is_committed` stays true).
        """
        outcome = operation(request, now=self.time())
        if outcome.timers:
            self._set_timers(outcome)
        if outcome.records:
            if not self.gathered:
                assert self._before_send is not None
                self._before_send(self.write)
            self.gathered.append((outcome, refuse))
        return outcome.response

    def settle(self) -> None:
        """Write what was gathered, if anything."""
        if self.gathered:
            self.write()

    def write(self) -> None:
        """Write what was gathered, if anything, as one batch; if that fails, each operation's records on their own."""
        gathered, self.gathered = self.gathered, []
        if len(gathered) > 1:
            try:
                batch = self._machine.join_batches([outcome.records for outcome, _ in gathered])
                position = self._journal.append(batch)
            except Exception:
                logger.warning("the gathered records could not be written as one batch", exc_info=True)
            else:
                for outcome, _ in gathered:
                    self._machine.replay_batch(outcome.records)
                if self._wait_for(position) is not None:
                    for _, refuse in gathered:
                        refuse(_uncommitted())
                return
        for outcome, refuse in gathered:
            try:
                position = self._append(outcome)
            except Exception as error:
                refuse(error)
            else:
                if self._wait_for(position) is not None:
                    refuse(_uncommitted())

    # ── append, replay, commit ────────────────────────────────────────────────────────────────────────────────────

    def _apply(self, outcome: Outcome[Record, Any]) -> Commit | None:
        """Do what was decided. Return what the response waits for, or None if it may leave now."""
        pending = self._uncommitted
        if outcome.records:
            pending = self._wait_for(self._append(outcome))
        if outcome.timers:
            self._set_timers(outcome)
        if pending is None:
            if outcome.answers:
                self._answer(outcome)
        elif outcome.answers or isinstance(outcome.response, Parked):
            self._when_committed(pending, partial(self._committed, outcome), partial(self._fail, outcome))
        return pending

    def _append(self, outcome: Outcome[Record, Any]) -> int:
        try:
            position = self._journal.append(outcome.records)
        except Exception as error:
            self._fail(outcome, error)
            instead = self._machine.append_failed(outcome, now=self._clock.now())
            assert not instead.records
            self._set_timers(instead)
            self._answer(instead)
            raise
        self._machine.replay_batch(outcome.records)
        return position

    def wait_for(self, position: int) -> None:
        """Let no response leave before everything below a position is committed: it was replayed by a load."""
        self._wait_for(position)

    def _wait_for(self, position: int) -> Commit | None:
        pending = self._journal.committed(position)
        if pending is not None:
            self._uncommitted = pending
            pending.add_done_callback(self._caught_up)
        return pending

    def _caught_up(self, pending: Commit) -> None:
        _problem(pending)  # asyncio warns of an error that nobody looked at.
        if self._uncommitted is pending:
            self._uncommitted = None

    def _committed(self, outcome: Outcome[Record, Any], pending: Commit) -> None:
        error = _problem(pending)
        if error is None:
            self._answer(outcome)
        else:
            self._fail(outcome, error)

    def _when_committed(self, pending: Commit, done: Callable[[Commit], None], refuse: Refuse) -> None:
        """Call ``done`` when the records are committed or lost, or ``refuse`` if that takes too long."""
        timeout = self._commit_timeout
        if timeout is None:
            pending.add_done_callback(done)
            return
        wait = object()
        self._waits[wait] = self._clock.elapsed() + timeout, refuse
        pending.add_done_callback(partial(self._end_wait, wait, done))
        if self._next_refusal is None:
            self._next_refusal = self._call_later(timeout, self._refuse_late)

    def _end_wait(self, wait: object, done: Callable[[Commit], None], pending: Commit) -> None:
        if self._waits.pop(wait, None) is not None:
            done(pending)
        else:
            _problem(pending)  # asyncio warns of an error that nobody looked at.

    def _refuse_late(self) -> None:
        self._next_refusal = None
        now = self._clock.elapsed()
        while self._waits and not self._is_closed:
            wait, (until, refuse) = next(iter(self._waits.items()))
            if until > now:
                self._next_refusal = self._call_later(until - now, self._refuse_late)
                return
            del self._waits[wait]
            refuse(
                errors.CoordinatorNotAvailable(
                    f"The records are written, but not on enough replicas after {self._commit_timeout} ms. Try again."
                )
            )

    # ── parked requests ───────────────────────────────────────────────────────────────────────────────────────────

    def _answer(self, outcome: Outcome[Record, Any]) -> None:
        for token, answer in outcome.answers.items():
            if (reply := self._parked.pop(token, None)) is not None and not reply.done():
                reply.set_result(answer)

    def _fail(self, outcome: Outcome[Record, Any], error: Exception) -> None:
        """Fail the parked requests that the outcome would have answered or parked. Their clients try again."""
        tokens = [*outcome.answers, *([outcome.response.token] if isinstance(outcome.response, Parked) else [])]
        for token in tokens:
            if (reply := self._parked.pop(token, None)) is not None and not reply.done():
                reply.set_exception(error)

    # ── timers ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _set_timers(self, outcome: Outcome[Record, Any]) -> None:
        for timer in outcome.timers:
            if timer.at is None:
                self.timers.cancel(timer.key)
            else:
                self.timers.set(timer.key, timer.at)
        self._arm()

    def _arm(self) -> None:
        deadline = self.timers.next_deadline()
        # Most deadlines move away with every heartbeat. An early wake-up now and then costs less than moving it too.
        if deadline is None or self._is_closed or (self._wakeup is not None and self._wakes_at <= deadline):
            return
        if self._wakeup is not None:
            self._wakeup.cancel()
        delay = max(0, deadline - self._clock.now())
        self._wakes_at, self._late_from = deadline, self._clock.elapsed() + delay
        self._wakeup = self._call_later(delay, self._woken)

    def time(self) -> Millis:
        """Return the time for the next operation. Timers that are due by then fire first."""
        now = self._clock.now()
        if self._wakeup is not None and self._late_from <= self._clock.elapsed():
            self._wakeup.cancel()
            self.fire_due(now)
        return now

    def _woken(self) -> None:
        self.fire_due(self._clock.now())

    def fire_due(self, now: Millis) -> None:
        """Fire every timer whose time has come."""
        self._wakeup = None
        for key in self.timers.due(now=now):
            try:
                self.settle()
                pending = self._apply(self._machine.fire(key, now=now))
            except Exception as error:
                self._fire_again(key, now, error)
            else:
                if pending is not None:
                    pending.add_done_callback(partial(self._fired, key, now))
        self._arm()

    def _fired(self, key: Hashable, now: Millis, pending: Commit) -> None:
        error = _problem(pending)
        if error is not None and not self._is_closed:
            self._fire_again(key, now, error)
            self._arm()

    def _fire_again(self, key: Hashable, now: Millis, error: Exception) -> None:
        if isinstance(error, errors.KafkaError):
            # For example too few replicas are in sync.
            logger.warning("the timer %r fires again in %d ms: %s", key, RETRY_AFTER, error)
        else:
            logger.error("the timer %r failed; it fires again in %d ms", key, RETRY_AFTER, exc_info=error)
        self.timers.set(key, now + RETRY_AFTER)

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
        """Stop the timers and fail what is parked: the coordinator is no longer here."""
        self._is_closed = True
        if self._wakeup is not None:
            self._wakeup.cancel()
            self._wakeup = None
        if self._next_refusal is not None:
            self._next_refusal.cancel()
            self._next_refusal = None
        for reply in self._parked.values():
            if not reply.done():
                reply.set_exception(errors.NotCoordinator("The coordinator has stopped. Find the coordinator again."))
        self._parked.clear()


def _uncommitted() -> Exception:
    """Replaces a provisional response that must not leave before its records are committed; the client tries again."""
    return errors.CoordinatorNotAvailable("The records are written but not committed yet. Try again.")


def _settle(reply: Reply, response: Any, pending: Commit) -> None:
    if reply.done():
        return
    error = _problem(pending)
    if error is None:
        reply.set_result(response)
    else:
        _refuse(reply, error)


def _refuse(reply: Reply, error: Exception) -> None:
    if not reply.done():
        reply.set_exception(error)


def _problem(pending: Commit) -> Exception | None:
    try:
        error = pending.exception()
    except BaseException:  # An asyncio.Future that was cancelled raises instead.
        error = errors.CoordinatorNotAvailable("The records were not committed before the broker stopped.")
    return error if error is None or isinstance(error, Exception) else errors.UnknownServerError(str(error))
