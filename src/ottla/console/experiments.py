"""Simulations of the lab for the console: one at a time, in a process of its own, with a limit, and remembered.

An `Experiment` is known by its address. Whoever opens the address again sees the same figures without another run.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.lab.runs import Result
    from ottla.lab.worker import Job

logger = logging.getLogger(__name__)

KEPT = 50
LIMIT = 120.0
"""Seconds after which a run is ended."""
MOST_WAITING = 5


@dataclass(slots=True)
class Experiment:
    """What was asked for, and what is known so far."""

    jobs: Sequence[Job]
    results: list[Result] = field(default_factory=list)
    problem: str | None = None
    is_over: bool = False


class Experiments:
    """Runs experiments in turn."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Experiment] = OrderedDict()
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def find(self, address: str) -> Experiment | None:
        """The experiment of an address, if it was run or runs."""
        if address in self._known:
            self._known.move_to_end(address)
        return self._known.get(address)

    @property
    def waiting(self) -> int:
        return sum(not one.is_over for one in self._known.values())

    def start(self, address: str, jobs: Sequence[Job]) -> Experiment:
        """Begin to run jobs as soon as those before are over."""
        experiment = Experiment(jobs)
        if self.waiting >= MOST_WAITING:
            experiment.problem, experiment.is_over = "Too many experiments wait. Try again later.", True
            return experiment
        self._known[address] = experiment
        while len(self._known) > KEPT:
            self._known.popitem(last=False)
        task = asyncio.get_running_loop().create_task(self._run(experiment))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return experiment

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, experiment: Experiment) -> None:
        try:
            async with self._turn, asyncio.timeout(LIMIT):
                await _work(experiment)
        except TimeoutError:
            experiment.problem = f"The run was ended after {LIMIT:.0f} s. Choose fewer members or designs."
        except Exception as error:
            logger.exception("an experiment failed")
            experiment.problem = f"The simulation failed: {type(error).__name__}: {error}"
        finally:
            experiment.is_over = True


async def _work(experiment: Experiment) -> None:
    # The lab imports the handlers of the broker.
    from ottla.lab.worker import load_result

    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ottla.lab.worker"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=64 * 1024 * 1024,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        process.stdin.write(json.dumps([one.dump() for one in experiment.jobs]).encode())
        process.stdin.close()
        async for line in process.stdout:
            experiment.results.append(load_result(line))
        words = (await process.stderr.read()).decode(errors="replace").strip().splitlines()
        if await process.wait() and len(experiment.results) < len(experiment.jobs):
            experiment.problem = f"The simulation failed: {words[-1] if words else 'it said nothing'}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
