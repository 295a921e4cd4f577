"""Find the lines of the keys and tables in a TOML text, which tomllib does not report.

The text must be valid TOML: tomllib has parsed it before.

    locate('[[sink]]\\nname = "a"\\n')  ->  {("sink",): 1, ("sink", 0): 1, ("sink", 0, "name"): 2}
"""

from __future__ import annotations

import re
import tomllib

Path = tuple[str | int, ...]

_SPACE = re.compile(r"[ \t]*")
_BETWEEN = re.compile(r"(?:[ \t\r\n,]|#[^\n]*)*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}#\n]*")
_QUOTES = ('"""', "'''", '"', "'")
_ENDS = {
    '"""': re.compile(r'(?:[^"\\]|\\.|"(?!""))*"{3,5}', re.S),
    "'''": re.compile(r"(?:[^']|'(?!''))*'{3,5}", re.S),
    '"': re.compile(r'(?:[^"\\]|\\.)*"'),
    "'": re.compile(r"[^']*'"),
}


def locate(text: str) -> dict[Path, int]:
    """The line number of every table and key, from 1."""
    return _Locator(text.replace("\r\n", "\n")).run()


class _Locator:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._lines: dict[Path, int] = {}
        self._last: dict[Path, int] = {}
        """The index of the last table of every array of tables; later headers and keys belong to it."""

    def run(self) -> dict[Path, int]:
        table: Path = ()
        while self._skip(_BETWEEN) < len(self._text):
            table = self._header() if self._text[self._at] == "[" else self._pair(table)
        return self._lines

    def _header(self) -> Path:
        line, array = self._line(), self._text.startswith("[[", self._at)
        self._at += 2 if array else 1
        path = self._below((), self._key(), line, last=array)
        self._at += 2 if array else 1
        if array:
            self._last[path] = self._last.get(path, -1) + 1
            self._lines.setdefault(path, line)
            path = (*path, self._last[path])
        self._lines.setdefault(path, line)
        return path

    def _pair(self, table: Path) -> Path:
        """Read a key and its value; returns the table for the next pair."""
        line = self._line()
        path = self._below(table, self._key(), line)
        self._lines[path] = line
        self._at += 1  # the equals sign
        self._value(path)
        return table

    def _below(self, path: Path, names: list[str], line: int, *, last: bool = False) -> Path:
        """Resolve a dotted key, through the last table of an array; `last` keeps a final array itself."""
        for number, name in enumerate(names):
            path = (*path, name)
            self._lines.setdefault(path, line)
            if path in self._last and not (last and number == len(names) - 1):
                path = (*path, self._last[path])
        return path

    def _key(self) -> list[str]:
        names = []
        while True:
            self._skip(_SPACE)
            start = self._at
            if self._text[start] in "\"'":
                self._string()
                names.append(str(tomllib.loads(f"x = {self._text[start : self._at]}")["x"]))
            else:
                self._skip(_BARE)
                names.append(self._text[start : self._at])
            self._skip(_SPACE)
            if self._text[self._at] != ".":
                return names
            self._at += 1

    def _value(self, path: Path) -> None:
        self._skip(_SPACE)
        sign = self._text[self._at]
        if sign in "\"'":
            self._string()
        elif sign == "[":
            self._array(path)
        elif sign == "{":
            self._at += 1
            while self._text[self._skip(_BETWEEN)] != "}":
                self._pair(path)
            self._at += 1
        else:
            self._skip(_SCALAR)

    def _array(self, path: Path) -> None:
        self._at += 1
        number = 0
        while self._text[self._skip(_BETWEEN)] != "]":
            self._lines[(*path, number)] = self._line()
            self._value((*path, number))
            number += 1
        self._at += 1

    def _string(self) -> None:
        quote = next(quote for quote in _QUOTES if self._text.startswith(quote, self._at))
        self._at += len(quote)
        self._skip(_ENDS[quote])

    def _skip(self, what: re.Pattern[str]) -> int:
        found = what.match(self._text, self._at)
        if found is not None:
            self._at = found.end()
        return self._at

    def _line(self) -> int:
        return self._text.count("\n", 0, self._at) + 1
