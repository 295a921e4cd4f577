"""Reads names and values against a configuration table. The rules of single values are in fields.py.

A table is a frozen dataclass whose fields are rows. These functions take the class, like `dataclasses.fields`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, ClassVar, Protocol

from ottla.config.fields import Key
from ottla.errors import ConfigError


class ConfigTable(Protocol):
    """What these functions need from a table."""

    what: ClassVar[str]

    @classmethod
    def suggestion(cls, name: str) -> str:
        """Return a sentence about an unknown name, with a space in front, or an empty text."""


_ROWS: dict[type[ConfigTable], Mapping[str, Key]] = {}


def rows(table: type[ConfigTable]) -> Mapping[str, Key]:
    """Return the rows of a table by name, in the order of the table."""
    if table not in _ROWS:
        found = [(each.name.replace("_", "."), each.metadata.get("key")) for each in fields(table)]  # type: ignore[arg-type]
        _ROWS[table] = {name: replace(row, name=name) for name, row in found if row is not None}
    return _ROWS[table]


def key(table: type[ConfigTable], name: str) -> Key:
    """Return the row of a name, which may be written with underscores. Raise ConfigError if there is none."""
    dotted = name.replace("_", ".")
    found = rows(table).get(dotted)
    if found is None:
        raise ConfigError(f"Unknown {table.what} name: {name}.{table.suggestion(dotted)}")
    return found


def named(table: type[ConfigTable], values: Mapping[str, object]) -> dict[str, object]:
    """Return the same values under the table's own names, which have dots."""
    found: dict[str, object] = {}
    for name, value in values.items():
        dotted = key(table, name).name
        if dotted in found:
            raise ConfigError(f"{table.what} {dotted} is given twice, with dots and with underscores.")
        found[dotted] = value
    return found


def parsed(table: type[ConfigTable], values: Mapping[str, object]) -> dict[str, Any]:
    """Return the typed value of each attribute. Raise ConfigError for an invalid name or value."""
    return {attribute(name): key(table, name).parse(value) for name, value in named(table, values).items()}


def attribute(name: str) -> str:
    """Return the attribute of a name: ``segment.bytes`` is `segment_bytes`."""
    return name.replace(".", "_")
