"""Wait until a condition holds, or fail with the last result."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from .clients.base import Consumer, Message

DEADLINE = 40.0
TICK = 0.02
Found = TypeVar("Found")


def until(condition: Callable[[], Found], what: str, timeout: float = DEADLINE) -> Found:
    """Repeat a call until its result is truthy, and return that."""
    deadline = time.monotonic() + timeout
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:g} s: {what} (last seen: {found!r})")
        time.sleep(TICK)
    return found


def take(consumer: Consumer, count: int, timeout: float = DEADLINE) -> list[Message]:
    """Poll until there are this many messages. There may be more."""
    messages: list[Message] = []
    deadline = time.monotonic() + timeout
    while len(messages) < count:
        left = deadline - time.monotonic()
        if left <= 0:
            raise AssertionError(f"{len(messages)} of {count} messages in {timeout:g} s: {messages[-3:]}")
        messages += consumer.poll(min(left, 1.0))
    return messages
