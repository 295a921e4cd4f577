"""Read Kafka's ``server.properties``, which is a Java properties file.

    # a comment; a line that starts with ! is one too
    name=value        or  name: value   or  name value
    name=a long value \
         continues    (leading blanks are ignored)
    name=tab\\t, newline\\n, é as \\u00e9, a backslash as \\\\

As in Java, the last value of a repeated name counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ottla.config.broker import BrokerConfig, broker_key, has_no_effect
from ottla.config.secrets import resolved, resolved_value
from ottla.config.security import PREFIX
from ottla.errors import ConfigError

_BLANKS = " \t\f"
_CONTINUED = re.compile(r"(?<!\\)(\\\\)*\\$")
_NAME = re.compile(r"(?:\\.|[^\\=:\s])*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    """A value, and the line of its name, counted from 1."""

    value: str
    line: int


def parse_properties(text: str) -> dict[str, str]:
    """Return the names and values of a properties file. ConfigError names an invalid line.

    >>> parse_properties("# ours\\nnum.partitions = 3\\nlog.dirs=/a,\\\\\\n  /b")
    {'num.partitions': '3', 'log.dirs': '/a,/b'}
    """
    return {name: each.value for name, each in properties_with_lines(text).items()}


def properties_with_lines(text: str) -> dict[str, Property]:
    """Like `parse_properties`, with the line of each name."""
    found: dict[str, Property] = {}
    for number, line in _logical_lines(text):
        name, value = _split(line, number)
        found[name] = Property(value, number)
    return found


def parse_broker_properties(
    text: str, *, source: str = "server.properties", overrides: Mapping[str, object] | None = None
) -> BrokerConfig:
    """Return the broker configuration of a properties file. `overrides` take precedence over the file.

    ConfigError names an invalid line.
    """
    try:
        properties = properties_with_lines(text)
    except ConfigError as error:
        raise ConfigError(f"{source}, {error}") from None
    values = {name: _checked(name, each, source) for name, each in properties.items()}
    stronger = {_dotted(name): value for name, value in (overrides or {}).items()}
    return BrokerConfig.parse(values | resolved(stronger))


def _dotted(name: str) -> str:
    """Return the name with dots. The name of a listener may have underscores."""
    return name if name.startswith(PREFIX) else name.replace("_", ".")


def _checked(name: str, each: Property, source: str) -> object:
    """Return the value, with the contents of what it refers to."""
    try:
        value = resolved_value(name, each.value)
        if not has_no_effect(name, value):
            broker_key(name).parse(value)
        return value
    except ConfigError as error:
        raise ConfigError(f"{source}, line {each.line}: {error}") from None


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not empty or comments, continued lines joined, with their first number."""
    started: tuple[int, str] | None = None
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        line = line.lstrip(_BLANKS)
        if started is None and (not line or line[0] in "#!"):
            continue
        first, before = started or (number, "")
        if _CONTINUED.search(line):
            started = (first, before + line[:-1])
            continue
        started = None
        yield first, before + line
    if started is not None:
        yield started


def _split(line: str, number: int) -> tuple[str, str]:
    name = _NAME.match(line)
    end = name.end() if name else 0
    separator = _SEPARATOR.match(line, end)
    start = separator.end() if separator else end
    if end == 0:
        raise ConfigError(f"line {number}: the name before the value is missing.")
    return _unescaped(line[:end], number), _unescaped(line[start:], number)


def _unescaped(text: str, number: int) -> str:
    def plain(match: re.Match[str]) -> str:
        escaped = match[1]
        if escaped == "u":
            raise ConfigError(f"line {number}: \\u must be followed by four hexadecimal digits.")
        return chr(int(escaped[1:], 16)) if len(escaped) > 1 else _ESCAPES.get(escaped, escaped)

    return _ESCAPE.sub(plain, text)
