"""What a row of a configuration table is: the type, the default, the checks and the documentation of one
name.

A table is a frozen dataclass; each of its fields is made by one of the functions at the end of this file. The
name of the configuration is the name of the attribute with dots (`segment_bytes` is ``segment.bytes``). New
kinds of values and new checks belong here; new names belong in the tables.
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
    """The types of Kafka's configurations, with the codes of DescribeConfigs."""

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
    """A rule for a value, and the words that finish the sentence "the value must be ..."."""

    says: str
    holds: Callable[[Any], bool]


def at_least(low: float) -> Check:
    return Check(f"at least {low}", lambda value: value >= low)


def between(low: float, high: float) -> Check:
    return Check(f"between {low} and {high}", lambda value: low <= value <= high)


def one_of(*names: str) -> Check:
    return Check("one of " + ", ".join(names), lambda value: value in names)


def each_of(*names: str) -> Check:
    return Check("a list out of " + ", ".join(names), lambda values: all(value in names for value in values))


@dataclass(frozen=True, slots=True)
class Key:
    """One row of a table."""

    name: str
    type: ConfigType
    default: Any
    doc: str
    checks: tuple[Check, ...] = ()
    dynamic: bool = False
    """The broker takes a new value of it while it runs."""
    internal: bool = False
    """Meant for tests: it works, but is neither described nor documented."""
    item: Callable[[str], Any] = str
    """Reads a text, or one item of a list: `str.upper` where the case does not matter."""
    collect: Callable[[list[Any]], Any] = tuple
    """Makes the attribute of the items of a list."""
    objects: bool = False
    """Takes Python objects too, as they are: a class, a function, an instance."""

    def parse(self, value: object) -> Any:
        """The typed value of what was given, as text or already typed; ConfigError when it breaks a rule."""
        if value is None:
            if self.default is None:
                return None
            raise self.refused(value, "a value is needed")
        parsed = self._typed(value)
        for check in self.checks:
            if not check.holds(parsed):
                raise self.refused(value, f"the value must be {check.says}")
        return parsed

    def canonical(self, value: object) -> str | None:
        """What was given as DescribeConfigs shows it: no stray blanks, lists in the order given."""
        if self.type is ConfigType.LIST and isinstance(value, str):
            self.parse(value)
            return ",".join(str(item) for item in self._items(value))
        return self.format(self.parse(value))

    def format(self, value: Any) -> str | None:
        """A typed value as Kafka writes it."""
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

    def refused(self, value: object, why: str) -> ConfigError:
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
            return self.item(value.strip())
        raise self.refused(value, "expected text")

    def _boolean(self, value: object) -> bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.strip().lower() in ("true", "false"):
            return value.strip().lower() == "true"
        raise self.refused(value, "expected true or false")

    def _integer(self, value: object, bits: int) -> int:
        if isinstance(value, str) and _INTEGER.fullmatch(value.strip()):
            value = int(value) if len(value.strip()) < 30 else 1 << 64
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.refused(value, "expected a whole number")
        limit = 1 << (bits - 1)
        if not -limit <= value < limit:
            raise self.refused(value, f"the number does not fit into {bits} bits")
        return value

    def _double(self, value: object) -> float:
        if isinstance(value, str) and _DECIMAL.fullmatch(value.strip()):
            value = float(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self.refused(value, "expected a number")
        return float(value)

    def _items(self, value: object) -> list[Any]:
        if isinstance(value, str):
            texts = [text.strip() for text in value.split(",")] if value.strip() else []
        elif isinstance(value, list | tuple | set | frozenset):
            texts = [str(item) for item in (sorted(value) if isinstance(value, set | frozenset) else value)]
        else:
            raise self.refused(value, "expected a list separated by commas")
        if "" in texts:
            raise self.refused(value, "the list has an empty item")
        return [self._item(value, text) for text in dict.fromkeys(texts)]

    def _item(self, value: object, text: str) -> Any:
        try:
            return self.item(text)
        except ValueError as error:
            raise self.refused(value, str(error)) from None


def _row(kind: ConfigType, default: Any, doc: str, checks: tuple[Check, ...], **more: Any) -> Any:
    return field(default=default, metadata={"key": Key("", kind, default, doc, checks, **more)})


def boolean(default: bool, doc: str, **more: Any) -> Any:
    return _row(ConfigType.BOOLEAN, default, doc, (), **more)


def string(default: str | None, doc: str, *checks: Check, **more: Any) -> Any:
    return _row(ConfigType.STRING, default, doc, checks, **more)


def int32(default: int | None, doc: str, *checks: Check, **more: Any) -> Any:
    return _row(ConfigType.INT, default, doc, checks, **more)


def int64(default: int | None, doc: str, *checks: Check, **more: Any) -> Any:
    return _row(ConfigType.LONG, default, doc, checks, **more)


def double(default: float, doc: str, *checks: Check, **more: Any) -> Any:
    return _row(ConfigType.DOUBLE, default, doc, checks, **more)


def password(default: str | None, doc: str, *checks: Check, **more: Any) -> Any:
    return _row(ConfigType.PASSWORD, default, doc, checks, **more)


def plugin(default: Any, doc: str, **more: Any) -> Any:
    """A class, function or instance, or the text ``module.name`` that says where it is."""
    return _row(ConfigType.CLASS, default, doc, (), objects=True, **more)


def plugins(default: Any, doc: str, *checks: Check, **more: Any) -> Any:
    """A list of such."""
    return _row(ConfigType.LIST, default, doc, checks, objects=True, **more)


def listing(default: Any, doc: str, *checks: Check, **more: Any) -> Any:
    return _row(ConfigType.LIST, default, doc, checks, **more)
