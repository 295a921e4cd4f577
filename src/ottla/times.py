"""Parse and format times and durations for commands."""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime, tzinfo

from ottla.types import Millis

_DAYS = r"(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
_TIME = r"(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,3})?)S)?"
# In ISO 8601 an M before the T would be months, which have no fixed length.
_DURATIONS = [re.compile(pattern, re.IGNORECASE) for pattern in (f"P{_DAYS}(?:T{_TIME})?", f"{_DAYS}{_TIME}")]
_UNITS_MS = {"weeks": 604_800_000, "days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}
#: No duration is longer than a thousand years.
LONGEST = 1000 * 366 * 86_400_000


def parse_time(text: str, zone: tzinfo | None = None) -> Millis:
    """Parse epoch milliseconds or ISO 8601. Without a zone in the text, `zone` applies, or else local time.

    >>> parse_time("1700000000000"), parse_time("2023-11-14T22:13:20Z")
    (1700000000000, 1700000000000)
    """
    try:
        if text.isdecimal() and int(text) < 2**63:
            return int(text)
        moment = datetime.fromisoformat(text)
        return int((moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time: write epoch milliseconds, or ISO 8601 such as 2026-01-31T08:00:00Z"
        ) from None


def parse_duration(text: str) -> Millis:
    """Parse a duration, in ISO 8601 or the short form.

    >>> parse_duration("PT1H30M"), parse_duration("90m"), parse_duration("2d"), parse_duration("1.001s")
    (5400000, 5400000, 172800000, 1001)
    """
    matches = [match for pattern in _DURATIONS if (match := pattern.fullmatch(text.strip()))]
    parts = {unit: number for unit, number in matches[0].groupdict().items() if number} if matches else {}
    length = sum(float(number) * _UNITS_MS[unit] for unit, number in parts.items())
    if not parts or length > LONGEST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration: write 90m, 36h, 7d, or ISO 8601 such as P7DT12H")
    return round(length)


def clock_time(at: Millis) -> str:
    """Format a time in the local zone."""
    if at < 0:
        return "-"
    moment = datetime.fromtimestamp(at / 1000, tz=UTC).astimezone()
    return moment.isoformat(sep=" ", timespec="milliseconds")


def duration(length: Millis) -> str:
    """
    >>> duration(14), duration(1204), duration(59_960), duration(125_000)
    ('14 ms', '1.2 s', '60.0 s', '2 min 5 s')
    """
    if length < 1_000:
        return f"{length} ms"
    if length < 60_000:
        return f"{length / 1000:.1f} s"
    return f"{length // 60_000} min {length % 60_000 // 1000} s"
