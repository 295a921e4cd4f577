"""Compatibility levels: which versions must read the data of which."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

NONE, BACKWARD, FORWARD, FULL = "NONE", "BACKWARD", "FORWARD", "FULL"
LEVELS = (
    NONE, BACKWARD, FORWARD, FULL, "BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE"
)  # fmt: skip
T = TypeVar("T")


def problems(
    level: str, new: T, before: Sequence[T], reading: Callable[[T, T], list[str]]
) -> tuple[list[str], T] | None:
    """Why a new schema is not compatible with those before, and with which one; None if it is.

    `reading(reader, writer)` says why a reader cannot read what a writer wrote.

    >>> problems("FULL", 3, [1, 2], lambda reader, writer: [f"{reader} cannot read {writer}"])
    (['3 cannot read 2', '2 cannot read 3'], 2)
    """
    if level == NONE:
        return None
    direction = level.removesuffix("_TRANSITIVE")
    for one in reversed(before if level.endswith("_TRANSITIVE") else before[-1:]):
        found = reading(new, one) if direction in (BACKWARD, FULL) else []
        found = [*found, *(reading(one, new) if direction in (FORWARD, FULL) else [])]
        if found:
            return found, one
    return None
