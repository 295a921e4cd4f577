"""The settings of an exporter, from a TOML file and from options, which win.

listen = "127.0.0.1:9404"
lag_seconds = 300
dead_letters = ["*.dead"]
webhook = "${env:ALERTS_URL}"
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ottla.config.listeners import parse_address
from ottla.config.secrets import resolved
from ottla.errors import ConfigError
from ottla.exporter.delivery import Places
from ottla.monitoring.watch import Limits
from ottla.suggestions import nearest
from ottla.types import wrong_with_topic_name


@dataclass(frozen=True, slots=True)
class Settings:
    """What an exporter serves and sends. Times are in seconds.

    >>> Settings.of({"lag_seconds": 300}).limits.lag_seconds
    300
    """

    listen: str = "127.0.0.1:9404"
    interval: float = 15.0
    lag_records: int | None = None
    lag_seconds: float | None = None
    dead_letters: tuple[str, ...] = ()
    quiet: float = 60.0
    repeat: float = 3600.0
    webhook: str | None = None
    events_log: str | None = None
    events_topic: str | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Settings:
        """Check the values. Raises ConfigError."""
        names = [one.name for one in fields(cls)]
        for name in values:
            if name not in names:
                near = nearest(name, names)
                hint = f"did you mean {near}?" if near else f"choose from {', '.join(names)}"
                raise ConfigError(f"there is no setting {name}: {hint}")
        return cls(**{name: _CHECKS[name](name, value) for name, value in resolved(values).items()})

    @property
    def limits(self) -> Limits:
        return Limits(self.lag_records, self.lag_seconds, round(self.quiet * 1000), round(self.repeat * 1000))

    @property
    def places(self) -> Places:
        return Places(self.webhook, self.events_log, self.events_topic)

    @property
    def address(self) -> tuple[str, int]:
        return parse_address(self.listen)


def read_settings(path: Path) -> dict[str, Any]:
    """The values in a TOML file. Raises ConfigError."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not a TOML file: {error}") from None


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{name} must be text, not {value!r}")
    return value


def _topic(name: str, value: Any) -> str:
    wrong = wrong_with_topic_name(_text(name, value))
    if wrong is not None:
        raise ConfigError(f"{name}: {value!r} {wrong}")
    return str(value)


def _address(name: str, value: Any) -> str:
    try:
        parse_address(_text(name, value))
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None
    return str(value)


def _url(name: str, value: Any) -> str:
    text = _text(name, value)
    if not is_url(text):
        # The address may have a secret in it.
        raise ConfigError(f"{name} is not an address such as https://alerts.example.com/kafka")
    return text


def is_url(text: str) -> bool:
    """Whether events can be posted to this address."""
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False


def _seconds(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise ConfigError(f"{name} must be a number of seconds above 0, not {value!r}")
    return value


def _interval(name: str, value: Any) -> float:
    if _seconds(name, value) < 1:
        raise ConfigError(f"{name} must be at least 1 second, not {value!r}: brokers have other work")
    return float(value)


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{name} must be a whole number from 1 on, not {value!r}")
    return value


def _patterns(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise ConfigError(f'{name} must be a list of topics or patterns such as ["*.dead"], not {value!r}')
    return tuple(_text(name, one) for one in value)


_CHECKS: Mapping[str, Any] = {
    "listen": _address,
    "interval": _interval,
    "lag_records": _count,
    "lag_seconds": _seconds,
    "dead_letters": _patterns,
    "quiet": _seconds,
    "repeat": _seconds,
    "webhook": _url,
    "events_log": _text,
    "events_topic": _topic,
}
