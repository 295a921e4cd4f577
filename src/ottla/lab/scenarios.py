"""What happens to a group: named scenarios, or a user's own in TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ottla.errors import ConfigError
from ottla.suggestions import nearest
from ottla.types import Millis

ACTIONS = ("start", "leave", "crash", "pause", "slow", "cut", "failover", "partitions")
_WITH_LENGTH = ("pause", "slow", "cut", "failover")
SECOND: Millis = 1_000


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happens, so long after the group was stable."""

    at: Millis
    action: str
    member: int = 0
    length: Millis = 0
    count: int = 0


@dataclass(frozen=True, slots=True)
class Scenario:
    """A list of events, and how long to watch the group after the last one."""

    name: str
    events: tuple[Event, ...]
    settle: Millis = 60 * SECOND


def _rolling_deploy(members: int) -> list[Event]:
    gap = max(10 * SECOND, 0) if members <= 20 else 200 * SECOND // members
    stops = [Event(n * gap, "leave", n) for n in range(members)]
    return sorted([*stops, *(Event(n * gap + 3 * SECOND, "start", n) for n in range(members))], key=lambda one: one.at)


def _crash_loop(members: int) -> list[Event]:
    return [
        event
        for n in range(5)
        for event in (Event(n * 25 * SECOND, "crash", 0), Event(n * 25 * SECOND + 5 * SECOND, "start", 0))
    ]


def _slow_member(members: int) -> list[Event]:
    """One member is slow to react whenever another one comes."""
    events = []
    for n in range(3):
        at = n * 40 * SECOND
        events += [Event(at, "slow", 0, 20 * SECOND), Event(at + SECOND, "start", members + n)]
    return events


def _scale(members: int) -> list[Event]:
    more = max(members // 2, 1)
    out = [Event(n * 200, "start", members + n) for n in range(more)]
    return [*out, *(Event(60 * SECOND + n * 200, "leave", members + n) for n in range(more))]


def _pauses(members: int) -> list[Event]:
    return [Event(n * 40 * SECOND, "pause", n % members, 20 * SECOND) for n in range(3)]


def _flapping(members: int) -> list[Event]:
    return [Event(n * 40 * SECOND, "cut", n % members, 20 * SECOND) for n in range(3)]


def _failover(members: int) -> list[Event]:
    return [Event(0, "failover", length=5 * SECOND)]


def _partitions(members: int) -> list[Event]:
    return [Event(0, "partitions", count=members)]


BY_NAME: dict[str, Callable[[int], list[Event]]] = {
    "rolling-deploy": _rolling_deploy,
    "crash-loop": _crash_loop,
    "slow-member": _slow_member,
    "scale": _scale,
    "long-pauses": _pauses,
    "flapping-network": _flapping,
    "failover": _failover,
    "added-partitions": _partitions,
}


def scenario(name: str, members: int) -> Scenario:
    """A scenario for a number of members. Raises ConfigError."""
    if name not in BY_NAME:
        near = nearest(name, BY_NAME)
        hint = f"did you mean {near}?" if near else f"choose from {', '.join(BY_NAME)}, or a file that ends in .toml"
        raise ConfigError(f"there is no scenario {name}: {hint}")
    return Scenario(name, tuple(BY_NAME[name](members)))


def read_scenario(path: Path) -> Scenario:
    """A user's scenario: ``[[event]]`` with at, action, member, seconds or count. Raises ConfigError."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not a TOML file: {error}") from None
    unknown = data.keys() - {"event", "settle"}
    rows = data.get("event")
    if unknown or not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise ConfigError(f"{path} must have [[event]] tables, and may have settle (seconds); see docs/lab.md")
    events = tuple(sorted((_event(path, number, row) for number, row in enumerate(rows, 1)), key=lambda one: one.at))
    settle = _number(f"{path}: settle", data.get("settle", 60))
    return Scenario(path.stem, events, round(settle * SECOND))


def _event(path: Path, number: int, row: dict[str, Any]) -> Event:
    where = f"{path}: event {number}"
    unknown = row.keys() - {"at", "action", "member", "seconds", "count"}
    if unknown:
        raise ConfigError(f"{where} has an unknown key {min(unknown)}: use at, action, member, seconds, count")
    action = row.get("action")
    if action not in ACTIONS:
        raise ConfigError(f"{where}: action must be one of {', '.join(ACTIONS)}, not {action!r}")
    if action in _WITH_LENGTH and "seconds" not in row:
        raise ConfigError(f"{where}: {action} needs seconds")
    member, count = row.get("member", 0), row.get("count", 1)
    if type(member) is not int or member < 0 or type(count) is not int or not 0 < count <= 10_000:
        raise ConfigError(f"{where}: member is a number from 0 on, count one from 1 to 10000")
    at, seconds = _number(f"{where}: at", row.get("at")), _number(f"{where}: seconds", row.get("seconds", 0))
    return Event(round(at * SECOND), action, member, round(seconds * SECOND), count)


def _number(what: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 86_400:
        raise ConfigError(f"{what} must be a number of seconds from 0 to 86400, not {value!r}")
    return value
