"""Runs simulations in a process of its own, so that whoever asked can go on, and can end them.

    python -m ottla.lab.worker < jobs.json          one line with a result for each job, as soon as it is known

`Job.dump` and `load_result` translate.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from typing import Any, TextIO

from ottla.lab.replays import Setting
from ottla.lab.runs import Result, run
from ottla.lab.scenarios import Event, Scenario


@dataclass(frozen=True, slots=True)
class Job:
    """One simulation."""

    setting: Setting
    scenario: Scenario
    members: int
    seed: int
    partitions: int | None = None

    def dump(self) -> dict[str, Any]:
        """The job as JSON."""
        return {**asdict(self), "setting": list(self.setting)}

    @classmethod
    def load(cls, data: dict[str, Any]) -> Job:
        given = data["scenario"]
        events = tuple(Event(**event) for event in given["events"])
        scenario = Scenario(given["name"], events, given["settle"])
        return cls(Setting(*data["setting"]), scenario, data["members"], data["seed"], data["partitions"])

    def run(self) -> Result:
        return run(
            self.setting.design,
            self.scenario,
            members=self.members,
            seed=self.seed,
            session_timeout=self.setting.session_timeout,
            partitions=self.partitions,
            max_poll_interval=self.setting.max_poll_interval,
        )


def load_result(line: str | bytes) -> Result:
    """A result from its line."""
    data = json.loads(line)
    return Result(**{**data, "unread": tuple((at, count) for at, count in data["unread"])})


def serve(jobs: TextIO, results: TextIO) -> None:
    """Run all jobs."""
    for data in json.load(jobs):
        results.write(json.dumps(asdict(Job.load(data).run())) + "\n")
        results.flush()


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
