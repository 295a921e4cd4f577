"""Who is logged in, who tried too often, and who keeps how many streams open. Time is a parameter."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import secrets
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass

LASTS = 12 * 3600.0
MOST_SESSIONS = 10_000
MOST_ADDRESSES = 10_000
ATTEMPTS = 5
WINDOW = 60.0


@dataclass(frozen=True, slots=True)
class Session:
    """Somebody who has logged in; `user` is None with a token."""

    id: str
    user: str | None
    ends: float


class Sessions:
    """The sessions of a console: in memory, so a restart logs everybody out."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def begin(self, user: str | None, *, now: float) -> Session:
        session = Session(secrets.token_urlsafe(32), user, now + LASTS)
        self._sessions[session.id] = session
        while len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return session

    def find(self, session_id: str, *, now: float) -> Session | None:
        session = self._sessions.get(session_id)
        if session is not None and session.ends <= now:
            del self._sessions[session_id]
            return None
        return session

    def users(self, *, now: float) -> set[str | None]:
        """Whose sessions have not ended."""
        return {one.user for one in self._sessions.values() if now < one.ends}

    def end(self, session_id: str) -> None:
        self._sessions.pop(session_id, None)


class Failures:
    """Failed logins by address: after `ATTEMPTS` in `WINDOW` seconds an address has to wait.

    >>> failures = Failures()
    >>> for _ in range(5):
    ...     _ = failures.failed("10.0.0.1", now=0)
    >>> failures.wait("10.0.0.1", now=1), failures.wait("10.0.0.2", now=1), failures.wait("10.0.0.1", now=60)
    (59.0, 0.0, 0.0)
    """

    def __init__(self) -> None:
        self._failed: OrderedDict[str, deque[float]] = OrderedDict()

    def wait(self, address: str, *, now: float) -> float:
        """For how many seconds this address may not try again."""
        times = self._failed.get(address)
        if times is None or len(times) < ATTEMPTS:
            return 0.0
        return max(times[0] + WINDOW - now, 0.0)

    def failed(self, address: str, *, now: float) -> float:
        """Count an attempt, and return its time."""
        self._failed.setdefault(address, deque(maxlen=ATTEMPTS)).append(now)
        self._failed.move_to_end(address)
        while len(self._failed) > MOST_ADDRESSES:
            self._failed.popitem(last=False)
        return now

    def succeeded(self, address: str, attempt: float) -> None:
        """An attempt that was counted beforehand did not fail."""
        with contextlib.suppress(KeyError, ValueError):
            self._failed[address].remove(attempt)


class Streams:
    """Open streams of events by owner: each owner may have some, and there is a limit for all together.

    >>> streams = Streams(each=1, most=5)
    >>> with streams.place("alice"):
    ...     with streams.place("alice"):
    ...         pass
    Traceback (most recent call last):
    ...
    ottla.console.sessions.TooMany: you have 1 live page open already: close it
    """

    def __init__(self, *, each: int, most: int) -> None:
        self._each = each
        self._most = most
        self._open: Counter[str] = Counter()

    @property
    def count(self) -> int:
        """How many are open."""
        return self._open.total()

    @contextlib.contextmanager
    def place(self, owner: str) -> Iterator[None]:
        """A place for one stream until the end of the block. Raises TooMany."""
        if self._open.get(owner, 0) >= self._each:
            pages, which = ("live page", "it") if self._each == 1 else ("live pages", "some")
            raise TooMany(f"you have {self._each} {pages} open already: close {which}")
        if self.count >= self._most:
            raise TooMany(f"the console has {self._most} live pages open already: try again later")
        self._open[owner] += 1
        try:
            yield
        finally:
            self._open[owner] -= 1
            # Owners come and go: a counter keeps zeros.
            if not self._open[owner]:
                del self._open[owner]


class TooMany(Exception):
    """A stream that has no place; the text says why."""


def same(given: str, secret: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), secret.encode("utf-8", "surrogateescape"))


def csrf_token(secret: bytes, session_id: str) -> str:
    """What a form must contain: other sites cannot read it from our pages."""
    return hmac.new(secret, b"form " + session_id.encode(), hashlib.sha256).hexdigest()
