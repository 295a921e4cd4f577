"""Experiments of the lab: one at a time, with a limit, and remembered by their address."""

from __future__ import annotations

import asyncio

import pytest

from ottla.console import experiments as module
from ottla.console.experiments import MOST_WAITING, Experiments
from ottla.console.views.lab import choice_of


def test_one_at_a_time_in_turn_and_remembered() -> None:
    async def run() -> None:
        experiments = Experiments()
        jobs = choice_of({"scenario": "failover", "members": "2"}, ["consumer", "classic-eager"]).jobs()
        first, second = experiments.start("a", jobs), experiments.start("b", jobs)
        async with asyncio.timeout(60):
            while not second.is_over:
                assert first.is_over or not second.results, "the second waits for the first"
                await asyncio.sleep(0.01)
        assert [one.design for one in first.results] == ["classic-eager", "consumer"]
        assert first.results == second.results
        assert first.problem is None
        assert experiments.find("a") is first
        await experiments.close()

    asyncio.run(run())


def test_a_run_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIMIT", 0.05)

    async def run() -> None:
        experiments = Experiments()
        experiment = experiments.start("a", choice_of({"scenario": "scale", "members": "100"}, []).jobs())
        async with asyncio.timeout(60):
            while not experiment.is_over:
                await asyncio.sleep(0.01)
        assert experiment.problem is not None
        assert "Choose fewer members or designs" in experiment.problem
        await experiments.close()

    asyncio.run(run())


def test_only_so_many_wait() -> None:
    async def run() -> None:
        experiments = Experiments()
        jobs = choice_of({"scenario": "failover", "members": "1"}, ["consumer"]).jobs()
        for number in range(MOST_WAITING):
            experiments.start(str(number), jobs)
        refused = experiments.start("more", jobs)
        assert refused.is_over
        assert refused.problem == "Too many experiments wait. Try again later."
        assert experiments.find("more") is None, "a later try may succeed"
        await experiments.close()

    asyncio.run(run())
