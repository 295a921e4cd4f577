"""Run a coroutine up to its first wait without a task: most requests never wait, and a task costs more than they do."""

from __future__ import annotations

import types
from collections.abc import Awaitable, Coroutine, Generator
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class Finished(Generic[Result]):
    """A coroutine that has returned."""

    __slots__ = ("result",)

    def __init__(self, result: Result) -> None:
        self.result = result


def start(coroutine: Coroutine[Any, Any, Result]) -> Finished[Result] | Awaitable[Result]:
    """Run a coroutine until it returns or waits; return its result, or an awaitable for the rest.

    The first part has no current task: it must not use timeouts.

    >>> async def answer(): return 42
    >>> start(answer()).result
    42
    """
    try:
        waits_for = coroutine.send(None)
    except StopIteration as stop:
        return Finished(stop.value)
    return _rest(coroutine, waits_for)


@types.coroutine
def _rest(coroutine: Coroutine[Any, Any, Result], waits_for: Any) -> Generator[Any, Any, Result]:
    while True:
        thrown: BaseException | None = None
        sent = None
        try:
            sent = yield waits_for
        except BaseException as error:
            thrown = error
        try:
            waits_for = coroutine.send(sent) if thrown is None else coroutine.throw(thrown)
        except StopIteration as stop:
            result: Result = stop.value
            return result
