"""Durations such as `10 seconds`, `5m`, `1 hour` and `500ms`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ottla.types import Millis

AVAILABLE_NOW = "available-now"
ONCE = "once"

_UNITS: dict[str, tuple[str, ...]] = {
    "milliseconds": ("ms", "milli", "millis", "millisecond", "milliseconds"),
    "seconds": ("s", "sec", "secs", "second", "seconds"),
    "minutes": ("m", "min", "mins", "minute", "minutes"),
    "hours": ("h", "hour", "hours"),
    "days": ("d", "day", "days"),
    "weeks": ("w", "week", "weeks"),
}
_MILLIS = {
    "milliseconds": 1,
    "seconds": 1000,
    "minutes": 60_000,
    "hours": 3_600_000,
    "days": 86_400_000,
    "weeks": 604_800_000,
}
_NAMES = {short: unit for unit, names in _UNITS.items() for short in names}


def interval(text: str) -> str:
    """The duration in Spark's notation; raises ValueError."""
    number, unit = _parsed(text)
    return f"{number} {unit}"


def millis(text: str) -> Millis:
    number, unit = _parsed(text)
    return number * _MILLIS[unit]


def bounds(within: str | Mapping[str, str]) -> tuple[str, str]:
    """The durations before and after an event in Spark's notation; raises ValueError.

    >>> bounds("1 hour"), bounds({"after": "5m"})
    (('1 hours', '1 hours'), ('0 seconds', '5 minutes'))
    """
    if isinstance(within, str):
        return interval(within), interval(within)
    before, after = (str(within.get(key, "0 seconds")) for key in ("before", "after"))
    return interval(before), interval(after)


def _parsed(text: str) -> tuple[int, str]:
    found = re.fullmatch(r"\s*(\d+)\s*([a-z]+)\s*", text.lower())
    if found is None or found[2] not in _NAMES:
        raise ValueError(f"must be a duration such as 10 seconds, 5 minutes or 1 hour, not {text!r}")
    return int(found[1]), _NAMES[found[2]]
