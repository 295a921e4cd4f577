"""Changes run to their end, even if no caller waits for them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import pytest

from ottla.broker.changes import Changes
from ottla.errors import InvalidRequest
from ottla.runtime import eager


async def test_a_result_and_an_error_come_to_who_waits() -> None:
    changes = Changes()

    async def refused() -> None:
        raise InvalidRequest("no")

    assert await changes.run(asyncio.sleep(0, "done")) == "done"
    with pytest.raises(InvalidRequest):
        await changes.run(refused())


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("how", ["cancelled", "dropped"])
def test_a_change_goes_on_when_nobody_waits_any_more(how: str, fails: bool, caplog: pytest.LogCaptureFixture) -> None:
    """A started request is dropped when its connection closes."""
    steps: list[str] = []

    async def change(go_on: asyncio.Event) -> None:
        steps.append("first")
        await go_on.wait()
        steps.append("second")
        if fails:
            raise InvalidRequest("too late to tell anybody")

    async def scenario() -> None:
        changes, go_on = Changes(), asyncio.Event()
        await _begin_and_leave(changes.run(change(go_on)), how)
        go_on.set()
        await changes.finish()
        assert steps == ["first", "second"]

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
    assert not caplog.records


async def _begin_and_leave(request: Coroutine[Any, Any, None], how: str) -> None:
    begun = eager.start(request)
    assert not isinstance(begun, eager.Finished)
    if how == "cancelled":
        task = asyncio.ensure_future(begun)
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    else:
        asyncio.ensure_future(begun).cancel()
        await asyncio.sleep(0.01)
