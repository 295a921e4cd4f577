"""Read the options of a user: names in any case, and values of a kind. `options.py` says which options there are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ottla.config.elsewhere import hint
from ottla.config.secrets import resolved_value
from ottla.config.table import ConfigTable, key, rows
from ottla.errors import ConfigError, OttlaError
from ottla.suggestions import did_you_mean
from ottla.types import Millis

_KAFKA = "kafka."
#: Options of Spark's source and sink without effect here, accepted for compatibility.
_IGNORED = ("fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "groupIdPrefix", "useDeprecatedOffsetFetching")
_OURS = {
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.enable.auto.commit": "use group.id; finished offsets are committed to it",
    "kafka.key.deserializer": "keys are binary: cast the column instead",
    "kafka.value.deserializer": "values are binary: cast the column instead",
    "kafka.key.serializer": "keys are binary or string: cast the column instead",
    "kafka.value.serializer": "values are binary or string: cast the column instead",
    "kafka.interceptor.classes": "interceptors are not supported, because records are read and written as columns",
    "kafka.partitioner.class": "add a partition column",
    "kafka.transactional.id": "use deliver=exactly-once, and transactionalIdPrefix for its ids",
}
_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class OptionError(OttlaError):
    """An invalid option of the data source."""


class Given:
    """The options of the user, with case-insensitive names."""

    def __init__(self, given: Mapping[str, str], names: Iterable[str]) -> None:
        self._values = {name.lower(): value for name, value in given.items()}
        known = [*names, *_IGNORED]
        lower = {name.lower() for name in known}
        for name in self._values:
            if name in _OURS:
                raise OptionError(f"option {name} cannot be set: {_OURS[name]}")
            if name == "path":
                raise OptionError("load and save do not accept a path: name topics with subscribe or topic")
            if name not in lower and not name.startswith(_KAFKA):
                raise OptionError(f"unknown option {name}.{did_you_mean(name, known)}")

    def text(self, name: str) -> str | None:
        value = self._values.get(name.lower())
        return None if value is None else value.strip()

    def filled(self, name: str, remedy: str) -> str | None:
        value = self.text(name)
        if value == "":
            raise OptionError(f"{name} is empty: {remedy}")
        return value

    def reject(self, names: Iterable[str], why: str) -> None:
        for name in names:
            if name.lower() in self._values:
                raise OptionError(f"option {name} {why}")

    def choice(self, name: str, *allowed: str) -> str:
        value = (self.text(name) or allowed[0]).lower()
        if value not in allowed:
            raise OptionError(f"option {name} must be one of {', '.join(allowed)}, not {value!r}")
        return value

    def boolean(self, name: str, default: bool) -> bool:
        value = (self.text(name) or str(default)).lower()
        if value not in ("true", "false"):
            raise OptionError(f"option {name} must be true or false, not {value!r}")
        return value == "true"

    def number(self, name: str) -> int | None:
        value = self.text(name)
        try:
            return None if value is None else int(value)
        except ValueError:
            raise OptionError(f"option {name} must be a whole number, not {value!r}") from None

    def positive(self, name: str) -> int | None:
        value = self.number(name)
        if value is not None and value < 1:
            raise OptionError(f"option {name} must be at least 1, not {value}")
        return value

    def duration(self, name: str, default: Millis) -> Millis:
        value = self.text(name)
        if value is None:
            return default
        found = re.fullmatch(r"(\d+)\s*([a-z]*)", value.lower())
        if found is None or (found[2] or "ms") not in _UNITS:
            raise OptionError(f"option {name} must be a duration such as 500ms, 30s or 15m, not {value!r}")
        return int(found[1]) * _UNITS[found[2] or "ms"]

    def json(self, name: str) -> Any:
        try:
            return json.loads(self.text(name) or "")
        except ValueError:
            raise OptionError(f"option {name} is not valid JSON: {self.text(name)!r}. {EXAMPLES[name]}") from None

    def kafka(self, *tables: type[ConfigTable]) -> dict[str, str]:
        """The client configs, without the prefix. Secrets are resolved here, on the driver: executors need none."""
        named = {name[len(_KAFKA) :]: value.strip() for name, value in self._values.items() if name.startswith(_KAFKA)}
        known = [name for table in tables for name in rows(table)]
        for name, value in named.items():
            table = next((table for table in tables if name in rows(table)), None)
            if table is None:
                raise OptionError(_unknown_config(name, known))
            try:
                named[name] = resolved_value(name, value)
                key(table, name).parse(named[name])
            except ConfigError as error:
                raise OptionError(f"option kafka.{name}: {error}") from None
        if not self._values:
            raise OptionError(
                "there are no options. For a table of CREATE TABLE … USING ottla OPTIONS (…), call "
                "ottla.spark.activate(spark) before the query, or use CREATE TEMPORARY VIEW"
            )
        if not named.get("bootstrap.servers"):
            raise OptionError('option kafka.bootstrap.servers is missing: name a broker, such as "localhost:9092"')
        return named


def _unknown_config(name: str, known: Sequence[str]) -> str:
    if why := hint(name, set(known)):
        return f"option kafka.{name} does not work here.{why}"
    return f"unknown client config kafka.{name}.{did_you_mean(name, known)}"


EXAMPLES = {
    "assign": 'Write {"orders": [0, 1]}',
    "startingOffsets": 'Write earliest, latest, committed or {"orders": {"0": 23, "1": -2}} (-2 is earliest)',
    "endingOffsets": 'Write latest or {"orders": {"0": 50, "1": -1}} (-1 is latest)',
    "startingOffsetsByTimestamp": 'Write {"orders": {"0": 1700000000000}}',
    "endingOffsetsByTimestamp": 'Write {"orders": {"0": 1700000000000}}',
}
