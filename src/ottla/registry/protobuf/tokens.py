"""The words of a .proto text."""

from __future__ import annotations

import re
from typing import NamedTuple

from ottla.registry.errors import InvalidSchema

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<number>0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?f?)
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<sign>[{}\[\]()<>=;,.:+\-/])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": 10, "r": 13, "t": 9, "a": 7, "b": 8, "f": 12, "v": 11, "\\": 92, "'": 39, '"': 34, "?": 63}
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|u[0-9a-fA-F]{4}|.)", re.DOTALL)


class Token(NamedTuple):
    kind: str
    text: str
    line: int


def tokens(text: str) -> list[Token]:
    """Split a .proto text; comments are left out, and an empty token ends the list."""
    found, at, line = [], 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise InvalidSchema(f"line {line}: unexpected {text[at]!r}")
        if match.lastgroup != "space":
            found.append(Token(str(match.lastgroup), match[0], line))
        line += match[0].count("\n")
        at = match.end()
    return [*found, Token("end", "", line)]


def unquoted(text: str) -> bytes:
    """The bytes of a quoted text."""

    def escape(match: re.Match[bytes]) -> bytes:
        one = match[1].decode("latin-1")
        if one[0] == "x" and len(one) > 1:
            return bytes([int(one[1:], 16)])
        if one[0] == "u" and len(one) > 1:
            return chr(int(one[1:], 16)).encode(errors="replace")
        if one[0] in "01234567":
            return bytes([int(one, 8) & 255])
        return bytes([_ESCAPES[one]]) if one in _ESCAPES else match[1]

    return _ESCAPE.sub(escape, text[1:-1].encode())


def quoted(data: bytes) -> str:
    """A quoted text for bytes."""
    return '"' + "".join(_shown(one) for one in data) + '"'


def _shown(one: int) -> str:
    if one in (34, 92):
        return f"\\{chr(one)}"
    return chr(one) if 32 <= one < 127 else f"\\{one:03o}"
