"""Coroutines that start without a task: results, errors, waits and cancellation work as in a task."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.runtime.eager import Finished, start


async def _as_task(rest: Any) -> Any:
    return await rest


def test_a_coroutine_that_does_not_wait_is_done_at_once() -> None:
    async def answer() -> int:
        return 42

    finished = start(answer())
    assert isinstance(finished, Finished)
    assert finished.result == 42


def test_an_error_before_the_first_wait_is_raised_at_once() -> None:
    async def fails() -> None:
        raise ValueError("now")

    with pytest.raises(ValueError, match="now"):
        start(fails())


def test_a_coroutine_that_waits_goes_on_as_a_task() -> None:
    async def scenario() -> None:
        future = asyncio.get_running_loop().create_future()
        seen = []

        async def waits() -> str:
            seen.append("begun")
            first = await future
            await asyncio.sleep(0)
            return f"{first} and the rest"

        rest = start(waits())
        assert seen == ["begun"]
        task = asyncio.ensure_future(_as_task(rest))
        future.set_result("first")
        assert await task == "first and the rest"

    asyncio.run(scenario())


async def test_errors_and_cancellation_reach_the_coroutine() -> None:
    ended = []

    async def waits(future: asyncio.Future[None]) -> None:
        try:
            await future
        except ValueError:
            ended.append("error")
            raise
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    loop = asyncio.get_running_loop()
    failing = loop.create_future()
    task = asyncio.ensure_future(_as_task(start(waits(failing))))
    failing.set_exception(ValueError())
    with pytest.raises(ValueError):
        await task
    task = asyncio.ensure_future(_as_task(start(waits(loop.create_future()))))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["error", "cancelled"]
