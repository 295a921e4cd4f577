"""The syntax of RE2, as far as topic names need it: reads an expression into a tree of nodes.

A set of characters is a number of 128 bits, since topic names are ASCII. What is captured does not matter, nor whether
a repetition is lazy: an expression either matches a whole name or it does not.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

MAX_LENGTH = 10_000
MAX_REPEAT = 1_000
"""Of one count, and of the product of counts inside of each other: as in RE2."""
MAX_DEPTH = 100
ALL = (1 << 128) - 1


class InvalidPattern(ValueError):
    """The expression is not one of RE2's, or too large."""


def _mask(characters: Iterable[str]) -> int:
    return sum(1 << ord(character) for character in set(characters))


def _range(first: str, last: str) -> int:
    return sum(1 << code for code in range(ord(first), min(ord(last), 127) + 1))


DIGIT = _range("0", "9")
UPPER, LOWER = _range("A", "Z"), _range("a", "z")
LETTER = UPPER | LOWER
WORD = DIGIT | LETTER | _mask("_")
SPACE = _mask("\t\n\f\r ")
GRAPH = _range("!", "~")
PERL = {"d": DIGIT, "s": SPACE, "w": WORD}
POSIX = {
    "alnum": DIGIT | LETTER,
    "alpha": LETTER,
    "ascii": ALL,
    "blank": _mask("\t "),
    "cntrl": _range("\0", "\x1f") | _mask("\x7f"),
    "digit": DIGIT,
    "graph": GRAPH,
    "lower": LOWER,
    "print": GRAPH | _mask(" "),
    "punct": GRAPH & ~(DIGIT | LETTER),
    "space": SPACE | _mask("\v"),
    "upper": UPPER,
    "word": WORD,
    "xdigit": DIGIT | _range("A", "F") | _range("a", "f"),
}
ESCAPED = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}


# ── what an expression is made of ─────────────────────────────────────────────────────────────────────────────────


class Characters(NamedTuple):
    mask: int


class Assertion(NamedTuple):
    kind: str
    """One of ``^ $ b B``."""


class Sequence(NamedTuple):
    parts: tuple[Node, ...]


class Choice(NamedTuple):
    parts: tuple[Node, ...]


class Repeat(NamedTuple):
    part: Node
    least: int
    most: int | None
    copies: int
    """How often what is innermost is there, if every count is written out."""


Node = Characters | Assertion | Sequence | Choice | Repeat


class Parser:
    """Reads an expression from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._fold = False
        self._dot = ALL & ~_mask("\n")
        self._depth = 0

    def parse(self) -> Node:
        if len(self._text) > MAX_LENGTH:
            raise InvalidPattern(f"expression too large: it has more than {MAX_LENGTH:,} characters")
        node = self._choice()
        if self._at < len(self._text):
            raise InvalidPattern("unexpected )")
        return node

    def _peek(self, prefix: str) -> bool:
        return self._text.startswith(prefix, self._at)

    def _take(self, prefix: str) -> bool:
        found = self._peek(prefix)
        self._at += len(prefix) * found
        return found

    def _next(self, what: str) -> str:
        if self._at >= len(self._text):
            raise InvalidPattern(f"missing {what}")
        self._at += 1
        return self._text[self._at - 1]

    def _until(self, end: str, what: str) -> str:
        stop = self._text.find(end, self._at)
        if stop < 0:
            raise InvalidPattern(f"missing {what}")
        found = self._text[self._at : stop]
        self._at = stop + len(end)
        return found

    def _choice(self) -> Node:
        fold, dot = self._fold, self._dot
        parts = [self._sequence()]
        while self._take("|"):
            parts.append(self._sequence())
        self._fold, self._dot = fold, dot  # Flags end with the group that they are in.
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        repeatable = False
        while self._at < len(self._text) and not self._peek("|") and not self._peek(")"):
            counts = self._repetition()
            if counts is not None:
                if not repeatable:
                    raise InvalidPattern("missing argument to repetition operator, or two of them")
                parts[-1] = _repeat(parts[-1], *counts)
                repeatable = False
            else:
                before = len(parts)
                parts.extend(self._atom())
                repeatable = len(parts) > before
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _repetition(self) -> tuple[int, int | None] | None:
        for sign, counts in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                self._take("?")  # Lazy or not is the same for a match of the whole.
                return counts
        start = self._at
        if not self._take("{"):
            return None
        inside, closed, _ = self._text[self._at :].partition("}")
        least, comma, most = inside.partition(",")
        if not closed or not _is_number(least) or (most and not _is_number(most)):
            self._at = start
            return None  # A brace that counts nothing is a brace.
        self._at += len(inside) + 1
        self._take("?")
        bounds = (int(least), None if comma and not most else int(most or least))
        if bounds[0] > MAX_REPEAT or (bounds[1] is not None and not bounds[0] <= bounds[1] <= MAX_REPEAT):
            raise InvalidPattern(f"invalid repeat count: {{{inside}}}")
        return bounds

    def _atom(self) -> list[Node]:
        if self._peek("{"):
            self._at += 1
            return [self._literal("{")]
        character = self._next("expression")
        match character:
            case "(":
                return self._group()
            case "[":
                return [Characters(self._class())]
            case ".":
                return [Characters(self._dot)]
            case "^" | "$":
                return [Assertion(character)]
            case "\\":
                return self._escape()
            case _:
                return [self._literal(character)]

    def _literal(self, character: str) -> Characters:
        mask = 1 << ord(character) if ord(character) < 128 else 0
        return Characters(_folded(mask) if self._fold else mask)

    # ── groups ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _group(self) -> list[Node]:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise InvalidPattern("expression nests too deeply")
        fold, dot = self._fold, self._dot
        if self._take("?P<") or (self._peek("?<") and not self._peek("?<=") and not self._peek("?<!")):
            self._take("?<")
            name = self._until(">", "> after the name of a group")
            if not name.isidentifier():
                raise InvalidPattern(f"invalid named capture: {name}")
        elif self._take("?") and not self._flags():
            self._depth -= 1
            return []  # Flags for the rest of the group that this stands in.
        node = self._choice()
        if not self._take(")"):
            raise InvalidPattern("missing closing )")
        self._fold, self._dot = fold, dot
        self._depth -= 1
        return [node]

    def _flags(self) -> bool:
        """Read flags; return whether an expression follows that they are for."""
        on = True
        while True:
            flag = self._next("closing )")
            match flag:
                case ")" | ":":
                    return flag == ":"
                case "-" if on:
                    on = False
                case "i":
                    self._fold = on
                case "s":
                    self._dot = ALL if on else ALL & ~_mask("\n")
                case "m" | "U":
                    pass  # About lines, which names have not, and about what is captured.
                case _:
                    raise InvalidPattern(f"invalid or unsupported Perl syntax: (?{flag}")

    # ── escapes and classes ───────────────────────────────────────────────────────────────────────────────────────

    def _escape(self) -> list[Node]:
        if self._take("Q"):
            stop = self._text.find("\\E", self._at)
            quoted = self._text[self._at : stop if stop >= 0 else None]
            self._at += len(quoted) + (2 if stop >= 0 else 0)
            return [self._literal(character) for character in quoted]
        for letter, kind in (("A", "^"), ("z", "$"), ("b", "b"), ("B", "B")):
            if self._take(letter):
                return [Assertion(kind)]
        mask = self._escaped_set()
        if mask is not None:
            return [Characters(mask)]
        return [self._literal(self._escaped_character())]

    def _escaped_set(self) -> int | None:
        for letter, mask in PERL.items():
            if self._take(letter):
                return mask
            if self._take(letter.upper()):
                return ALL & ~mask
        for letter in "pP":
            if self._take(letter):
                name = self._next("name of a class")
                if name == "{":
                    name = self._until("}", "} after the name of a class")
                mask = _unicode_class(name.removeprefix("^"))
                return mask if (letter == "p") != name.startswith("^") else ALL & ~mask
        return None

    def _escaped_character(self) -> str:
        character = self._next("character after \\ at the end")
        if character in ESCAPED:
            return ESCAPED[character]
        if character == "x":
            return self._hexadecimal()
        if character == "0" or (character in "1234567" and self._text[self._at : self._at + 1] in set("01234567")):
            digits = character
            while len(digits) < 3 and self._text[self._at : self._at + 1] in set("01234567"):
                digits += self._next("digit")
            return chr(int(digits, 8))
        if character.isascii() and character.isalnum():
            raise InvalidPattern(f"invalid escape sequence: \\{character}")
        return character

    def _hexadecimal(self) -> str:
        if self._take("{"):
            digits = self._until("}", "} after a number")
        else:
            digits = self._text[self._at : self._at + 2]
            self._at += len(digits)
        try:
            return chr(int(digits, 16))
        except (ValueError, OverflowError):
            raise InvalidPattern(f"invalid escape sequence: \\x{digits}") from None

    def _class(self) -> int:
        negated = self._take("^")
        mask, first = 0, True
        while first or not self._peek("]"):
            first = False
            mask |= self._class_part()
        self._at += 1
        if self._fold:
            mask = _folded(mask)
        return ALL & ~mask if negated else mask

    def _class_part(self) -> int:
        if self._take("[:"):
            name = self._until(":]", "closing :]")
            if name.removeprefix("^") not in POSIX:
                raise InvalidPattern(f"invalid character class range: [:{name}:]")
            mask = POSIX[name.removeprefix("^")]
            return ALL & ~mask if name.startswith("^") else mask
        first = self._next("closing ]")
        if first == "\\":
            mask_or_none = self._escaped_set()
            if mask_or_none is not None:
                return mask_or_none
            first = self._escaped_character()
        if not self._peek("-") or self._text[self._at + 1 : self._at + 2] in ("", "]"):
            return 1 << ord(first) if ord(first) < 128 else 0
        self._at += 1
        last = self._next("closing ]")
        if last == "\\":
            last = self._escaped_character()
        if last < first:
            raise InvalidPattern(f"invalid character class range: {first}-{last}")
        return _range(first, last)


def _repeat(part: Node, least: int, most: int | None) -> Repeat:
    times = least if most is None else most
    copies = 1 if most == 0 else max(times, 1) * _copies(part)
    if times > 1 and copies > MAX_REPEAT:
        raise InvalidPattern(
            f"invalid repeat count: the counts that stand inside of each other make {copies:,} copies, and at most "
            f"{MAX_REPEAT:,} are allowed; make them smaller, or write * or + instead"
        )
    return Repeat(part, least, most, copies)


def _copies(node: Node) -> int:
    match node:
        case Repeat():
            return node.copies
        case Sequence(parts) | Choice(parts):
            return max(map(_copies, parts), default=1)
        case _:
            return 1


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def _folded(mask: int) -> int:
    return mask | (mask & UPPER) << 32 | (mask & LOWER) >> 32


@lru_cache(maxsize=100)
def _unicode_class(name: str) -> int:
    known = {"Any": ALL, "Latin": LETTER, "Common": ALL & ~LETTER}
    if name in known:
        return known[name]
    categories = {unicodedata.category(chr(code)) for code in range(0x3100)}
    if not name or not any(category.startswith(name) for category in categories):
        raise InvalidPattern(f"invalid character class range: \\p{{{name}}}")
    return sum(1 << code for code in range(128) if unicodedata.category(chr(code)).startswith(name))
