"""What the lab page shows: the choices of its form, and the figures of an experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ottla.console.views.paging import whole
from ottla.errors import ConfigError
from ottla.lab.replays import Setting
from ottla.lab.runs import DESIGNS, MAX_POLL_INTERVAL, SESSION_TIMEOUT, Result
from ottla.lab.scenarios import BY_NAME, scenario
from ottla.lab.worker import Job

MOST_MEMBERS = 100
ABOUT = {
    "rolling-deploy": "each member in turn is closed, and comes back 3 seconds later",
    "crash-loop": "one member crashes five times, and comes back after 5 seconds",
    "slow-member": "one member does not poll for 20 seconds while another one joins, three times",
    "scale": "half as many members come within seconds, and leave after a minute",
    "long-pauses": "three processes stop for 20 seconds, longer than the session timeout",
    "flapping-network": "three members have no contact with the group for 20 seconds, but still read",
    "failover": "the coordinator is away for 5 seconds; for watchers, a broker",
    "added-partitions": "the topic gets half as many partitions more",
}


ABOUT_DESIGNS = {
    "watchers": "Every consumer watches the others in ZooKeeper, and claims its share alone: Kafka up to 0.8.",
    "server": "A coordinator watches ZooKeeper. It stops all members, assigns, and lets them go on: a draft for 0.9.",
    "classic-eager": "Members join, and a leader among them assigns. All give up everything first.",
    "classic-cooperative": "The same, but only partitions that move are given up.",
    "classic-static": "Eager, with members that keep their places while they restart (group.instance.id).",
    "consumer": "KIP-848: the coordinator assigns, and members reconcile with their heartbeats.",
}


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen in the form."""

    scenario: str
    members: int
    seed: int
    designs: tuple[str, ...]

    @property
    def command(self) -> list[str]:
        """The arguments of the equivalent command."""
        chosen = [word for one in self.designs for word in ("--design", one)] if self.designs != DESIGNS else []
        return ["lab", self.scenario, "--members", str(self.members), "--seed", str(self.seed), *chosen]

    def jobs(self) -> list[Job]:
        """The simulations to run."""
        events = scenario(self.scenario, self.members)
        settings = [Setting(design, SESSION_TIMEOUT, MAX_POLL_INTERVAL) for design in self.designs]
        return [Job(one, events, self.members, self.seed) for one in settings]


def choice_of(values: Mapping[str, str], designs: Sequence[str]) -> Choice:
    """What was chosen. Raises ConfigError.

    >>> choice_of({"scenario": "scale", "members": "5"}, ["consumer"]).command
    ['lab', 'scale', '--members', '5', '--seed', '1', '--design', 'consumer']
    """
    name = values.get("scenario", "")
    scenario(name, 1)
    members, seed = values.get("members") or "10", values.get("seed") or "1"
    count, number = whole(members), whole(seed)
    if count is None or not 1 <= count <= MOST_MEMBERS:
        raise ConfigError(f"members: write 1 to {MOST_MEMBERS}. `ottla lab` can simulate up to 1,000.")
    if number is None:
        raise ConfigError("seed: write a whole number from 0 on, with at most 18 digits")
    unknown = [one for one in designs if one not in DESIGNS]
    if unknown:
        raise ConfigError(f"there is no design {unknown[0]}: choose from {', '.join(DESIGNS)}")
    return Choice(name, count, number, tuple(one for one in DESIGNS if not designs or one in designs))


@dataclass(frozen=True, slots=True)
class Block:
    """The figures of all designs under the same timeouts."""

    title: str
    results: Sequence[Result]

    @property
    def least(self) -> int:
        """The least time without consumption."""
        return min(one.without_ms for one in self.results)


def blocks(results: Sequence[Result], *, with_polls: bool) -> list[Block]:
    """The results by their timeouts."""
    found: dict[tuple[int, int], list[Result]] = {}
    for one in results:
        found.setdefault((one.session_timeout_ms, one.max_poll_interval_ms), []).append(one)
    return [
        Block(f"session.timeout.ms={session}" + (f", max.poll.interval.ms={polls}" if with_polls else ""), some)
        for (session, polls), some in found.items()
    ]


def scenarios() -> list[tuple[str, str]]:
    """The scenarios with what happens in them."""
    return [(name, ABOUT[name]) for name in BY_NAME]
