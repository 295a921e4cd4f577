"""Text in pieces: what may deceive the eye is made visible, and JSON is laid out and coloured.

A piece is text, never markup: templates escape it. Values come from anybody who can write to a topic.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import NamedTuple

MAX_DEPTH = 40
"""Deeper JSON is shown as text."""
_TOKEN = re.compile(
    r'(?P<string>"(?:[^"\\]|\\.)*")|(?P<number>-?\d[\d.eE+-]*)|(?P<word>-?[A-Za-z]+)|(?P<mark>[\[\]{},:])|(?P<space>\s+)'
)
_INDENT = "  "


class Piece(NamedTuple):
    """A part of a text. `kind` is empty for plain text, else the end of a CSS class."""

    text: str
    kind: str = ""
    title: str = ""


def visible(text: str, kind: str = "", *, breaks: bool = True) -> Iterator[Piece]:
    r"""Text with invisible characters replaced: control, direction, zero-width and other special ones.

    Without `breaks`, line breaks and tabs are replaced, too.

    >>> [piece.text for piece in visible("pay\u202e1\x1b[0m")]
    ['pay', 'U+202E', '1', '␛', '[0m']
    """
    plain_ones = "\n\t" if breaks else ""
    if text.isprintable() or (breaks and text.replace("\n", "").replace("\t", "").isprintable()):
        yield Piece(text, kind)
        return
    plain: list[str] = []
    for character in text:
        if character.isprintable() or character in plain_ones:
            plain.append(character)
            continue
        if plain:
            yield Piece("".join(plain), kind)
            plain.clear()
        yield _odd(character)
    if plain:
        yield Piece("".join(plain), kind)


def _odd(character: str) -> Piece:
    code = ord(character)
    title = f"U+{code:04X} {unicodedata.name(character, '').lower()}".strip()
    if 0xDC80 <= code <= 0xDCFF:
        return Piece(f"\\x{code - 0xDC00:02x}", "odd", f"byte 0x{code - 0xDC00:02x}, which is not UTF-8")
    if code < 0x20:
        return Piece(chr(0x2400 + code), "odd", title)
    return Piece("␡" if code == 0x7F else f"U+{code:04X}", "odd", title)


def json_pieces(text: str, *, nested: bool = False) -> list[Piece] | None:
    """JSON laid out over lines, with the numbers and escapes as they were written; None if it is not JSON.

    With `nested`, a string that contains a JSON object or array is laid out, too.
    """
    if not _is_json(text):
        return None
    try:
        return list(_merged(_laid_out(text, nested, 0)))
    except _TooDeep:
        return None


def _is_json(text: str) -> bool:
    try:
        # Numbers with thousands of digits are not converted.
        json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return False
    return True


class _TooDeep(Exception):
    pass


def _laid_out(text: str, nested: bool, depth: int) -> Iterator[Piece]:
    tokens = [match for match in _TOKEN.finditer(text) if match.lastgroup != "space"]
    for number, match in enumerate(tokens):
        token = match.group()
        following = tokens[number + 1].group() if number + 1 < len(tokens) else ""
        if match.lastgroup == "mark":
            step = (token in "[{") - (token in "]}")
            if depth + step > MAX_DEPTH:
                raise _TooDeep
            is_empty = token + following in ("[]", "{}")
            if token in "]}" and (not number or tokens[number - 1].group() + token not in ("[]", "{}")):
                yield Piece("\n" + _INDENT * (depth - 1))
            depth += step
            yield Piece(token + (" " if token == ":" else ""))
            if token == "," or (step > 0 and not is_empty):
                yield Piece("\n" + _INDENT * depth)
        elif match.lastgroup == "string":
            yield from _string(token, following == ":", nested, depth)
        else:
            yield Piece(token, "number" if match.lastgroup == "number" else "word")


def _string(token: str, is_name: bool, nested: bool, depth: int) -> Iterator[Piece]:
    if is_name:
        yield from visible(token, "name")
        return
    if nested and len(token) > 3:
        inner = json.loads(token).strip()
        if inner[:1] in ("{", "[") and _is_json(inner):
            yield Piece("JSON in a string:", "note")
            yield Piece(" ")
            yield from _laid_out(inner, nested, depth)
            return
    yield from visible(token, "string")


def _merged(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Plain pieces in a row as one."""
    plain = ""
    for piece in pieces:
        if not piece.kind:
            plain += piece.text
            continue
        if plain:
            yield Piece(plain)
            plain = ""
        yield piece
    if plain:
        yield Piece(plain)


def shortened(pieces: Iterable[Piece], characters: int, lines: int) -> tuple[list[Piece], bool]:
    """The first pieces, and whether something was left out."""
    kept: list[Piece] = []
    for piece in pieces:
        text = piece.text[:characters]
        parts = text.split("\n", lines)
        if len(parts) > lines:
            text = "\n".join(parts[:lines])
        if text:
            kept.append(piece._replace(text=text))
        if text != piece.text:
            return kept, True
        characters -= len(text)
        lines -= len(parts) - 1
    return kept, False


def hex_dump(data: bytes) -> str:
    """Bytes as lines of offset, hexadecimal and ASCII.

    >>> print(hex_dump(b"ottla\\x00\\xff"))
    00000000  6f 74 74 6c 61 00 ff                              |ottla..|
    """
    lines = []
    for start in range(0, len(data), 16):
        row = data[start : start + 16]
        left, right = row[:8].hex(" "), row[8:].hex(" ")
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:08x}  {left:<23}  {right:<23}  |{shown}|")
    return "\n".join(lines)
