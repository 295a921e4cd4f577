"""The ports of a driver in virtual time: a clock, a journal, wake-ups and replies that a test or a simulation moves."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from random import Random
from typing import Any, Generic, Protocol, TypeVar

from ottla.driver import Driver
from ottla.machine import Machine, Outcome
from ottla.types import Millis

_WAITING = object()
Log = list[tuple[bytes, bytes | None]]
Record = TypeVar("Record")


class VirtualReply:
    """A response that comes later."""

    def __init__(self) -> None:
        self.result: Any = _WAITING
        """The response, or the error."""
        self.callbacks: list[Callable[[Any], None]] = []

    def done(self) -> bool:
        return self.result is not _WAITING

    def set_result(self, result: Any, /) -> None:
        self.result = result
        for callback in self.callbacks:
            callback(result)

    set_exception = set_result


class VirtualCommit:
    """Records that are committed when somebody says so."""

    def __init__(self) -> None:
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Any], object]] = []

    def add_done_callback(self, callback: Callable[[Any], object], /) -> None:
        self._callbacks.append(callback)

    def exception(self) -> BaseException | None:
        return self._error

    def finish(self, error: BaseException | None = None) -> None:
        self._error = error
        for callback in self._callbacks:
            callback(self)


class VirtualWakeup:
    """A wake-up that can be cancelled."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self._callback = None

    def __call__(self) -> None:
        if self._callback is not None:
            self._callback()


class HasNow(Protocol):
    now: Millis


class VirtualClock:
    """Shows the ``now`` of a world or a context."""

    def __init__(self, owner: HasNow) -> None:
        self._owner = owner

    def now(self) -> Millis:
        return self._owner.now

    elapsed = now


class AppendFailed(Exception):
    """The log rejected the records."""


class VirtualJournal(Generic[Record]):
    """A log in memory as a driver sees it. It may reject records, and it may commit them later."""

    def __init__(
        self,
        log: Log,
        encode: Callable[[Record], tuple[bytes, bytes | None]],
        *,
        rejects: Callable[[], bool] = lambda: False,
        commit_later: Callable[[Callable[[], None]], None] | None = None,
        on_commit: Callable[[int], None] = lambda end: None,
    ) -> None:
        """``commit_later(commit)`` must have ``commit`` called later, in order. Without it commits come at once."""
        self.log = log
        self.committed_end = len(log)
        self.uncommitted_ends: deque[int] = deque()
        """The positions after each batch that is not committed yet."""
        self._encode = encode
        self._rejects = rejects
        self._commit_later = commit_later
        self._on_commit = on_commit

    @property
    def lags(self) -> bool:
        return self._commit_later is not None

    def append(self, records: Sequence[Record], /) -> int:
        if self._rejects():
            raise AppendFailed
        self.log += map(self._encode, records)
        return len(self.log)

    def committed(self, position: int, /) -> VirtualCommit | None:
        if self._commit_later is None or position <= self.committed_end:
            self._commit(position)
            return None
        commit = VirtualCommit()
        self.uncommitted_ends.append(position)
        self._commit_later(partial(self._finish, position, commit))
        return commit

    def _finish(self, position: int, commit: VirtualCommit) -> None:
        self.uncommitted_ends.popleft()
        self._commit(position)
        commit.finish()

    def _commit(self, position: int) -> None:
        self.committed_end = max(self.committed_end, position)
        self._on_commit(self.committed_end)


def manual_driver(machine: Machine[Record], journal: VirtualJournal[Record], owner: HasNow) -> Driver[Record]:
    """Return a driver whose timers fire when a test calls `Driver.fire_due`, or before the next operation."""
    return Driver(
        machine,
        journal,
        VirtualClock(owner),
        call_later=lambda delay, callback: VirtualWakeup(callback),
        new_reply=VirtualReply,
        before_send=lambda write: None,
    )


def begin(
    driver: Driver[Record], operation: Callable[..., Outcome[Record, Any]], *args: Any, **kwargs: Any
) -> tuple[Outcome[Record, Any], Any]:
    """Run an operation; return its outcome, and its response or the reply that will have it."""
    outcomes = []

    def watched(*args: Any, **kwargs: Any) -> Outcome[Record, Any]:
        outcomes.append(operation(*args, **kwargs))
        return outcomes[0]

    begun = driver.begin(watched, *args, **kwargs)
    return outcomes[0], begun


class Timeline:
    """Virtual time with events, and a broker that lives several times. Everything follows from the seed."""

    def __init__(self, seed: int, start: Millis) -> None:
        self.random = Random(seed)
        self.now = self.start = start
        self.trace: deque[str] = deque(maxlen=400)
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self.life = 0
        self._last_commit = 0

    def say(self, text: str) -> None:
        self.trace.append(f"{(self.now - self.start) / 1000:9.3f}  {text}")

    def after(self, delay: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + max(0, int(delay)), next(self._order), event))

    def run_until(self, end: int, stop: Callable[[], bool] | None = None) -> None:
        """Run events until a time, or until a condition holds."""
        while self._events and self._events[0][0] <= end:
            at, _, event = heapq.heappop(self._events)
            self.now = max(self.now, at)
            event()
            if stop is not None and stop():
                return
        self.now = end

    # ── the broker ────────────────────────────────────────────────────────────────────────────────────────────────

    def next_life(self) -> None:
        """Cancel what the broker had under way. Called when it starts and when it is killed."""
        self.life += 1
        self._last_commit = 0

    def after_unless_killed(self, delay: float, event: Callable[[], None]) -> None:
        """Like `after`, but a kill of the broker cancels it."""
        life = self.life
        self.after(delay, lambda: event() if self.life == life else None)

    def commit_later(self, commit: Callable[[], None]) -> None:
        """Commit what a journal has appended, in order."""
        self._last_commit = max(self._last_commit, self.now + self.random.choice([1, 5, 50, 500]))
        self.after_unless_killed(self._last_commit - self.now, commit)

    def call_later(self, delay: Millis, callback: Callable[[], None], *, late: float) -> VirtualWakeup:
        """Wake the broker up. ``late`` says how often the event loop is noticeably late."""
        wakeup = VirtualWakeup(callback)
        lateness = self.random.uniform(0, 2_000) if self.random.random() < late else self.random.uniform(0, 3)
        self.after_unless_killed(delay + lateness, wakeup)
        return wakeup
