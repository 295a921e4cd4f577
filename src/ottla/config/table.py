"""Reading a mapping of names and values against a table. The rules of single values are in fields.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, ClassVar, Self

from ottla.config.fields import Key
from ottla.errors import ConfigError
from ottla.suggestions import did_you_mean

_ROWS: dict[type, Mapping[str, Key]] = {}


class ConfigTable:
    """What the tables share. A table is a frozen dataclass whose fields are rows (see fields.py).

    `parse` checks everything; the constructor takes typed values as they are, which is meant for tests.
    """

    __slots__ = ()

    what: ClassVar[str] = "configuration"

    @classmethod
    def rows(cls) -> Mapping[str, Key]:
        """The rows of the table by their names, in the order of the table."""
        if cls not in _ROWS:
            rows = [(field.name.replace("_", "."), field.metadata.get("key")) for field in fields(cls)]  # type: ignore[arg-type]
            _ROWS[cls] = {name: replace(key, name=name) for name, key in rows if key is not None}
        return _ROWS[cls]

    @classmethod
    def parse(cls, values: Mapping[str, object]) -> Self:
        """The configuration that has these values and the defaults for everything else."""
        named = cls.named(values)
        parsed = {attribute(name): cls.key(name).parse(value) for name, value in named.items()}
        return cls.of(parsed).checked()

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The configuration with these attributes, which are not checked."""
        return cls(**values)

    @classmethod
    def key(cls, name: str) -> Key:
        """The row of a name, which may be written with underscores; ConfigError if there is none."""
        dotted = name.replace("_", ".")
        key = cls.rows().get(dotted)
        if key is None:
            raise ConfigError(f"Unknown {cls.what} name: {name}.{cls.suggestion(dotted)}")
        return key

    @classmethod
    def named(cls, values: Mapping[str, object]) -> dict[str, object]:
        """The same values under the names of the table."""
        named: dict[str, object] = {}
        for name, value in values.items():
            dotted = cls.key(name).name
            if dotted in named:
                raise ConfigError(f"{cls.what} {dotted} is given twice, with dots and with underscores.")
            named[dotted] = value
        return named

    @classmethod
    def suggestion(cls, name: str) -> str:
        return did_you_mean(name, cls.rows())

    def checked(self) -> Self:
        """This configuration if its values fit each other, else ConfigError."""
        return self


def attribute(name: str) -> str:
    """The attribute of a name: ``segment.bytes`` is `segment_bytes`."""
    return name.replace(".", "_")
