"""Answers that pages share: asked once, kept for a while, never a failure."""

from __future__ import annotations

import asyncio

import pytest

from ottla.console.shared import Shared


class Source:
    def __init__(self) -> None:
        self.asked = 0
        self.fails = False

    async def ask(self) -> int:
        self.asked += 1
        await asyncio.sleep(0)
        if self.fails:
            raise OSError("away")
        return self.asked


async def test_who_asks_first_asks_for_all() -> None:
    shared, source = Shared(), Source()
    assert await asyncio.gather(*(shared.get("a", 60, source.ask) for _ in range(5))) == [1] * 5
    assert await shared.get("a", 60, source.ask) == 1
    assert await shared.get("b", 60, source.ask) == 2
    shared.forget("a")
    assert await shared.get("a", 60, source.ask) == 3
    shared.forget_all()
    assert await shared.get("b", 60, source.ask) == 4


async def test_an_answer_becomes_old_and_a_failure_is_not_kept() -> None:
    shared, source = Shared(), Source()
    assert [await shared.get("a", 0, source.ask) for _ in range(3)] == [1, 2, 3]
    source.fails = True
    for _ in range(2):
        with pytest.raises(OSError, match="away"):
            await shared.get("b", 60, source.ask)
    assert source.asked == 5


async def test_who_goes_away_does_not_take_the_answer_from_others() -> None:
    shared, source = Shared(), Source()
    gone = asyncio.ensure_future(shared.get("a", 60, source.ask))
    stays = asyncio.ensure_future(shared.get("a", 60, source.ask))
    await asyncio.sleep(0)
    gone.cancel()
    assert await stays == 1
    await shared.close()
