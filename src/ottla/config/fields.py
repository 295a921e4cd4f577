"""A row of a configuration table: type, default, checks and documentation of one name.

A table is a frozen dataclass. The functions at the end of this file make its fields. A configuration name is the
attribute with dots (`segment_bytes` is ``segment.bytes``). New types and checks belong here, new names in the tables.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from ottla.errors import ConfigError

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = 1.7976931348623157e308


class ConfigType(IntEnum):
    """Kafka's configuration types, with the codes of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Check:
    """A rule for a value. `says` completes the sentence "the value must be ..."."""

    says: str
    holds: Callable[[Any], bool]


def at_least(low: float) -> Check:
    return Check(f"at least {low}", lambda value: value >= low)


def between(low: float, high: float) -> Check:
    return Check(f"between {low} and {high}", lambda value: low <= value <= high)


def one_of(*names: str) -> Check:
    return Check("one of " + ", ".join(names), lambda value: value in names)


def each_of(*names: str) -> Check:
    return Check("a list of " + ", ".join(names), lambda values: all(value in names for value in values))


@dataclass(frozen=True, slots=True)
class Key:
    """One row of a table."""

    name: str
    type: ConfigType
    default: Any
    doc: str
    checks: tuple[Check, ...] = ()
    dynamic: bool = False
    """The broker accepts a new value while it runs."""
    internal: bool = False
    """For tests: it works, but is neither described nor documented."""
    item: Callable[[str], Any] = str
    """Converts a text or one item of a list. `str.upper` ignores case."""
    collect: Callable[[list[Any]], Any] = tuple
    """Converts the items of a list to the attribute."""
    objects: bool = False
    """Also accepts Python objects: a class, a function, an instance."""

    def parse(self, value: object) -> Any:
        """Return the typed value of a text or of a typed value. Raise ConfigError if it is invalid."""
        if value is None:
            if self.default is None:
                return None
            raise self.invalid(value, "a value is required")
        parsed = self._typed(value)
        for check in self.checks:
            if not check.holds(parsed):
                raise self.invalid(value, f"the value must be {check.says}")
        return parsed

    def canonical(self, value: object) -> str | None:
        """Return a value as DescribeConfigs shows it: without extra blanks, lists in the given order."""
        if self.type is ConfigType.LIST and isinstance(value, str):
            self.parse(value)
            return ",".join(str(item) for item in self._items(value))
        return self.format(self.parse(value))

    def format(self, value: Any) -> str | None:
        """Return a typed value as text, as Kafka writes it."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, float):
            return repr(value).replace("e+", "E").replace("e", "E")
        if isinstance(value, frozenset):
            return ",".join(sorted(map(str, value)))
        if isinstance(value, tuple) and self.type is ConfigType.LIST:
            return ",".join(map(self._text, value))
        return self._text(value)

    def _text(self, value: Any) -> str:
        if not self.objects or isinstance(value, str):
            return str(value)
        named = value if hasattr(value, "__qualname__") else type(value)
        return f"{named.__module__}.{named.__qualname__}"

    def invalid(self, value: object, why: str) -> ConfigError:
        shown = "[hidden]" if self.type is ConfigType.PASSWORD else value
        return ConfigError(f"Invalid value {shown!r} for configuration {self.name}: {why}.")

    def _typed(self, value: object) -> Any:
        if self.objects and not isinstance(value, str):
            listed = self.type is ConfigType.LIST
            return self.collect(list(value) if isinstance(value, list | tuple) else [value]) if listed else value
        if self.type is ConfigType.BOOLEAN:
            return self._boolean(value)
        if self.type in _BITS:
            return self._integer(value, _BITS[self.type])
        if self.type is ConfigType.DOUBLE:
            return self._double(value)
        if self.type is ConfigType.LIST:
            return self.collect(self._items(value))
        if isinstance(value, str):
            return self._item(value, value.strip())
        raise self.invalid(value, "expected text")

    def _boolean(self, value: object) -> bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.strip().lower() in ("true", "false"):
            return value.strip().lower() == "true"
        raise self.invalid(value, "expected true or false")

    def _integer(self, value: object, bits: int) -> int:
        if isinstance(value, str) and _INTEGER.fullmatch(value.strip()):
            value = int(value) if len(value.strip()) < 30 else 1 << 64
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.invalid(value, "expected a whole number")
        limit = 1 << (bits - 1)
        if not -limit <= value < limit:
            raise self.invalid(value, f"the number does not fit into {bits} bits")
        return value

    def _double(self, value: object) -> float:
        if isinstance(value, str) and _DECIMAL.fullmatch(value.strip()):
            value = float(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self.invalid(value, "expected a number")
        return float(value)

    def _items(self, value: object) -> list[Any]:
        if isinstance(value, str):
            texts = [text.strip() for text in value.split(",")] if value.strip() else []
        elif isinstance(value, list | tuple | set | frozenset):
            texts = [str(item) for item in (sorted(value) if isinstance(value, set | frozenset) else value)]
        else:
            raise self.invalid(value, "expected a list separated by commas")
        if "" in texts:
            raise self.invalid(value, "the list has an empty item")
        return [self._item(value, text) for text in dict.fromkeys(texts)]

    def _item(self, value: object, text: str) -> Any:
        try:
            return self.item(text)
        except ValueError as error:
            raise self.invalid(value, str(error)) from None


def _row(kind: ConfigType, default: Any, doc: str, checks: tuple[Check, ...], **more: Any) -> Any:
    shown = kind is not ConfigType.PASSWORD
    return field(default=default, repr=shown, metadata={"key": Key("", kind, default, doc, checks, **more)})


def boolean(default: bool, doc: str, **more: Any) -> Any:
    return _row(ConfigType.BOOLEAN, default, doc, (), **more)


def string(default: str | None, doc: str, *checks: Check, **more: Any) -> Any:
    return _row(ConfigType.STRING, default, doc, checks, **more)


def int16(default: int | None, doc: str, *checks: Check, **more: Any) -> Any:
    return _row(ConfigType.SHORT, default, doc, checks, **more)


def int32(default: int | None, doc: str, *checks: Check, **more: Any) -> Any:
    return _row(ConfigType.INT, default, doc, checks, **more)


def int64(default: int | None, doc: str, *checks: Check, **more: Any) -> Any:
    return _row(ConfigType.LONG, default, doc, checks, **more)


def double(default: float, doc: str, *checks: Check, **more: Any) -> Any:
    return _row(ConfigType.DOUBLE, default, doc, checks, **more)


def password(default: str | None, doc: str, *checks: Check, **more: Any) -> Any:
    return _row(ConfigType.PASSWORD, default, doc, checks, **more)


def plugin(default: Any, doc: str, **more: Any) -> Any:
    """A class, function or instance, or its import path ``module.name``."""
    return _row(ConfigType.CLASS, default, doc, (), objects=True, **more)


def plugins(default: Any, doc: str, *checks: Check, **more: Any) -> Any:
    """A list of plugins."""
    return _row(ConfigType.LIST, default, doc, checks, objects=True, **more)


def listing(default: Any, doc: str, *checks: Check, **more: Any) -> Any:
    return _row(ConfigType.LIST, default, doc, checks, **more)
