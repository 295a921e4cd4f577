"""An event loop in virtual time: timers fire as soon as no socket has anything to do."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
#: What the kernel may need to bring a packet from one socket to another on loopback.
_DELIVERY_SECONDS = 0.002


class _Selector(selectors.DefaultSelector):
    """Instead of waiting for the next timer, it lets the time pass."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        if not (ready := super().select(_DELIVERY_SECONDS)):
            self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """All sockets must be of this loop: it does not wait for others. A minute takes a few milliseconds."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
