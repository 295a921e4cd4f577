"""Replay the recorded rebalances of a group under other settings, and say which one would have helped.

found = await recorded(admin, "billing", since=None, session_timeout=45_000)
results = [run_under(found, setting, seed=1) for setting in settings(found)]
advice(found, results)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.groups import CONSUMER
from ottla.clients.admin.offsets_topic import read_history
from ottla.coordinator.history import KEPT
from ottla.errors import OttlaError
from ottla.groups.lookup import existing_groups
from ottla.lab.history import Replay, replay
from ottla.lab.runs import DESIGNS, Result, run
from ottla.runtime.clock import SystemClock
from ottla.types import Millis

RECORDED_TIMEOUT: Millis = 45_000
LONGEST_TIMEOUT: Millis = 1_800_000
REPLAYED = tuple(design for design in DESIGNS if design not in ("watchers", "server"))
_MINUTE: Millis = 60_000
_ENOUGH = 0.9
"""A setting that leaves more than this share of the time without consumption does not help much."""
_CHANGES = {
    "classic-eager": "partition.assignment.strategy=range",
    "classic-cooperative": "partition.assignment.strategy=cooperative-sticky",
    "classic-static": "a group.instance.id for each member",
    "consumer": "group.protocol=consumer",
}


class Setting(NamedTuple):
    """What a replay is run with."""

    design: str
    session_timeout: Millis
    max_poll_interval: Millis


async def recorded(admin: AsyncAdmin, group: str, *, since: Millis | None, session_timeout: Millis) -> Replay:
    """What happened to a group in the last `since` milliseconds. Raises OttlaError if nothing is recorded."""
    (described,) = await existing_groups(admin, [group])
    found = (await read_history(admin.cluster, group)).rebalances
    first = 0 if since is None else SystemClock().now() - since
    values = [one for one in found if one.ended_at >= first]
    if not values:
        when = "" if since is None else " in this time"
        raise OttlaError(
            f"group {group!r} has no recorded rebalances{when}: ottla's broker records the last {KEPT}, "
            "Apache Kafka records none"
        )
    return replay(group, values, is_consumer=described.type == CONSUMER, session_timeout=session_timeout)


def settings(found: Replay, designs: Iterable[str] = REPLAYED) -> list[Setting]:
    """What the group had first, then each design, also with longer timeouts."""
    timeouts = [(found.session_timeout, found.max_poll_interval)]
    if found.longest_poll:
        # Above the longest time that the member needed, in whole minutes.
        timeouts.append((found.session_timeout, (found.longest_poll // _MINUTE + 1) * _MINUTE))
    timeouts.append((min(3 * found.session_timeout, LONGEST_TIMEOUT), found.max_poll_interval))
    chosen = list(dict.fromkeys([found.design, *designs]))
    return [Setting(design, *some) for some in timeouts for design in chosen]


def run_under(found: Replay, setting: Setting, *, seed: int) -> Result:
    """Replay what happened under a setting."""
    return run(
        setting.design,
        found.scenario,
        members=found.members,
        partitions=found.partitions,
        seed=seed,
        session_timeout=setting.session_timeout,
        max_poll_interval=setting.max_poll_interval,
    )


def setting_of(result: Result) -> Setting:
    return Setting(result.design, result.session_timeout_ms, result.max_poll_interval_ms)


def changes(setting: Setting, now: Setting) -> list[str]:
    """The configs to set, to get from one setting to another.

    >>> now = Setting("classic-eager", 45_000, 300_000)
    >>> changes(Setting("consumer", 45_000, 600_000), now)
    ['group.protocol=consumer', 'max.poll.interval.ms=600000']
    """
    found = [_CHANGES[setting.design]] if setting.design != now.design else []
    if setting.session_timeout != now.session_timeout:
        name = "consumer.session.timeout.ms" if setting.design == "consumer" else "session.timeout.ms"
        of_group = " (a config of the group)" if setting.design == "consumer" else ""
        found.append(f"{name}={setting.session_timeout}{of_group}")
    if setting.max_poll_interval != now.max_poll_interval:
        found.append(f"max.poll.interval.ms={setting.max_poll_interval}")
    return found


def advice(found: Replay, results: Sequence[Result]) -> str:
    """Name the setting that would have helped most. Of settings that help about as much, the one with fewer changes."""
    now = Setting(found.design, found.session_timeout, found.max_poll_interval)
    before = next(one.without_ms for one in results if setting_of(one) == now)
    least = min(one.without_ms for one in results)
    if least > _ENOUGH * before:
        return "no other design or timeout would have helped much"
    near = [one for one in results if one.without_ms <= least + 0.05 * before]
    best = min(near, key=lambda one: (len(changes(setting_of(one), now)), one.without_ms))
    told = f"{best.without_ms / 1000:.0f} s instead of {before / 1000:.0f} s without consumption"
    return f"{' and '.join(changes(setting_of(best), now))} would have helped most: {told}"
