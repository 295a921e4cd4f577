"""Kafka's ``server.properties``: the notation of Java's property files, read.

    # a comment, as is a line that starts with !
    name=value        or  name: value   or  name value
    name=a long value \
         goes on      blanks at the start of a line mean nothing
    name=tab\\t, newline\\n, é as \\u00e9, a backslash as \\\\

As in Java a name that stands there twice has its last value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ottla.config.broker import BrokerConfig
from ottla.config.foreign import is_ignored
from ottla.errors import ConfigError

_BLANKS = " \t\f"
_CONTINUED = re.compile(r"(?<!\\)(\\\\)*\\$")
_NAME = re.compile(r"(?:\\.|[^\\=:\s])*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    """A value, and the line where its name stands, counted from 1."""

    value: str
    line: int


def parse_properties(text: str) -> dict[str, str]:
    """The names and values of a property file; ConfigError names the line that cannot be read.

    >>> parse_properties("# ours\\nnum.partitions = 3\\nlog.dirs=/a,\\\\\\n  /b")
    {'num.partitions': '3', 'log.dirs': '/a,/b'}
    """
    return {name: each.value for name, each in properties_with_lines(text).items()}


def properties_with_lines(text: str) -> dict[str, Property]:
    """The same as `parse_properties`, with the line of each name."""
    found: dict[str, Property] = {}
    for number, line in _logical_lines(text):
        name, value = _split(line, number)
        found[name] = Property(value, number)
    return found


def parse_broker_properties(
    text: str, *, source: str = "server.properties", overrides: Mapping[str, object] | None = None
) -> BrokerConfig:
    """The broker configuration of a property file; what is in `overrides` counts more than the file.

    ConfigError says which line of the source is wrong.
    """
    try:
        properties = properties_with_lines(text)
    except ConfigError as error:
        raise ConfigError(f"{source}, {error}") from None
    for name, each in properties.items():
        _check(name, each, source)
    stronger = {name.replace("_", "."): value for name, value in (overrides or {}).items()}
    return BrokerConfig.parse({name: each.value for name, each in properties.items()} | stronger)


def _check(name: str, each: Property, source: str) -> None:
    if is_ignored(name):
        return
    try:
        BrokerConfig.key(name).parse(each.value)
    except ConfigError as error:
        raise ConfigError(f"{source}, line {each.line}: {error}") from None


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines that say something, continued lines joined, with the number of the first one."""
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
        raise ConfigError(f"line {number}: there is no name before the value.")
    return _unescaped(line[:end], number), _unescaped(line[start:], number)


def _unescaped(text: str, number: int) -> str:
    def plain(match: re.Match[str]) -> str:
        escaped = match[1]
        if escaped == "u":
            raise ConfigError(f"line {number}: \\u needs four hexadecimal digits after it.")
        return chr(int(escaped[1:], 16)) if len(escaped) > 1 else _ESCAPES.get(escaped, escaped)

    return _ESCAPE.sub(plain, text)
