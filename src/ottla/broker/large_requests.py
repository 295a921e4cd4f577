"""Help for requests with many entries: let other requests run in between, and find repeated entries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable, Iterable
from typing import TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
ITEMS_BETWEEN_PAUSES = 100


async def with_pauses(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield the items. After every 100 of them the event loop serves other connections."""
    for number, item in enumerate(items):
        if number % ITEMS_BETWEEN_PAUSES == ITEMS_BETWEEN_PAUSES - 1:
            await asyncio.sleep(0)
        yield item


def unique(items: Iterable[T], key: Callable[[T], K]) -> list[tuple[T, bool]]:
    """Return the first item of each key, in order, and whether the key is repeated.

    >>> unique(["a", "b", "A"], str.lower)
    [('a', True), ('b', False)]
    """
    first: dict[K, T] = {}
    repeated: set[K] = set()
    for item in items:
        name = key(item)
        if name in first:
            repeated.add(name)
        else:
            first[name] = item
    return [(item, name in repeated) for name, item in first.items()]
