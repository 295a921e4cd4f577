"""Requests about very many things: others get their turn meanwhile, and no thing is looked for twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable, Iterable
from typing import TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
ITEMS_A_TURN = 100


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """Give the items one by one; after every hundred the event loop serves other connections."""
    for number, item in enumerate(items):
        if number % ITEMS_A_TURN == ITEMS_A_TURN - 1:
            await asyncio.sleep(0)
        yield item


def once(items: Iterable[T], key: Callable[[T], K]) -> list[tuple[T, bool]]:
    """The first item of every key, in order, and whether there are more of the same.

    >>> once(["a", "b", "A"], str.lower)
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
