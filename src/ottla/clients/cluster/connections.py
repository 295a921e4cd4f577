"""Decides about connections: when to retry an address, for how long, which broker to use, which connection to close.

Nothing here reads a clock or uses randomness: `now` and `chance` are parameters, so tests cover hours of reconnecting
in milliseconds. `pool.py` has the sockets and carries out the decisions.

    DISCONNECTED ──> CONNECTING ──> READY
         ^  └── backing off ──┘ fail    │
         └────────── lost, idle ────────┘
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from ottla.types import Millis

JITTER = 0.2

Address = TypeVar("Address", bound=Hashable)


class State(Enum):
    DISCONNECTED = "disconnected"
    CONNECTING = "connecting"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits that double with each failure up to a limit, with a random jitter of 20 %.

    >>> [Backoff(50, 1_000).after(failures, chance=0.0) for failures in range(1, 7)]
    [50, 100, 200, 400, 800, 1000]
    >>> Backoff(50, 1_000).after(1, chance=1.0)
    60
    """

    first_ms: Millis
    longest_ms: Millis

    def after(self, failures: int, *, chance: float) -> Millis:
        """The wait after so many failures in a row; `chance` is between -1 and 1."""
        longest = max(self.first_ms, self.longest_ms)
        wait = min(self.first_ms * 2.0 ** min(max(failures - 1, 0), 62), longest)
        return round(wait * (1 + JITTER * chance))


@dataclass(slots=True)
class _Link:
    state: State = State.DISCONNECTED
    failures: int = 0
    setup_failures: int = 0
    not_before: Millis = 0
    last_attempt: Millis = -1


class ConnectionStates(Generic[Address]):
    """What is known of the connection to each address."""

    def __init__(self, reconnect: Backoff, setup: Backoff) -> None:
        self._reconnect = reconnect
        self._setup = setup
        self._links: dict[Address, _Link] = {}

    def _link(self, address: Address) -> _Link:
        return self._links.setdefault(address, _Link())

    def state(self, address: Address) -> State:
        link = self._links.get(address)
        return link.state if link is not None else State.DISCONNECTED

    def failures(self, address: Address) -> int:
        """How many attempts have failed since the last success."""
        link = self._links.get(address)
        return link.failures if link is not None else 0

    def wait_ms(self, address: Address, *, now: Millis) -> Millis:
        """How long the next attempt has to wait."""
        link = self._links.get(address)
        return max(0, link.not_before - now) if link is not None and link.state is State.DISCONNECTED else 0

    def last_attempt(self, address: Address) -> Millis:
        """When the last attempt was made; -1 for never."""
        link = self._links.get(address)
        return link.last_attempt if link is not None else -1

    def connecting(self, address: Address, *, now: Millis, chance: float) -> Millis:
        """Start an attempt; returns how long it may take, which is longer after one that timed out."""
        link = self._link(address)
        link.state = State.CONNECTING
        link.last_attempt = now
        return self._setup.after(link.setup_failures + 1, chance=chance)

    def ready(self, address: Address) -> None:
        link = self._link(address)
        link.state = State.READY
        link.failures = link.setup_failures = 0

    def lost(self, address: Address, *, now: Millis, chance: float, connecting: bool = False) -> None:
        """The connection broke, or (`connecting`) failed: back off."""
        link = self._link(address)
        link.state = State.DISCONNECTED
        link.failures += 1
        link.setup_failures += connecting
        link.not_before = now + self._reconnect.after(link.failures, chance=chance)

    def closed(self, address: Address) -> None:
        """Closed on purpose: the next attempt may come at once."""
        self._links.pop(address, None)

    def forget(self, known: Iterable[Address]) -> None:
        """Forget all other addresses that have no connection."""
        keep = set(known)
        for address in [one for one, link in self._links.items() if link.state is State.DISCONNECTED]:
            if address not in keep:
                del self._links[address]


def least_loaded(
    candidates: Iterable[Address],
    states: ConnectionStates[Address],
    in_flight: Mapping[Address, int],
    *,
    now: Millis,
    start: int,
) -> Address | None:
    """The broker for a request that any broker can answer: the ready one with the fewest requests in flight, else one
    that is connecting, else the one whose last attempt is the longest ago. None if all are backing off.

    `start` breaks ties: a random number spreads many clients over the brokers.
    """
    order = list(dict.fromkeys(candidates))
    order = order[start % len(order) :] + order[: start % len(order)] if order else []
    ready = [one for one in order if states.state(one) is State.READY]
    if ready:
        return min(ready, key=lambda one: in_flight.get(one, 0))
    for one in order:
        if states.state(one) is State.CONNECTING:
            return one
    free = [one for one in order if not states.wait_ms(one, now=now)]
    return min(free, key=states.last_attempt) if free else None


def idle(last_used: Mapping[Address, Millis], *, max_idle_ms: Millis, now: Millis) -> list[Address]:
    """The connections to close now, the least recently used first.

    >>> idle({"a": 50, "b": 10, "c": 95}, max_idle_ms=30, now=100)
    ['b', 'a']
    """
    old = [one for one, used in last_used.items() if now - used >= max_idle_ms]
    return sorted(old, key=lambda one: last_used[one])


def next_idle_check_ms(last_used: Iterable[Millis], *, max_idle_ms: Millis, now: Millis) -> Millis | None:
    """When to check for idle connections again; None if there are no connections."""
    oldest = min(last_used, default=None)
    return None if oldest is None else max(1, oldest + max_idle_ms - now)
