"""Regular expressions in RE2's syntax, matched against whole names in linear time by the ``google-re2`` package.

Python's ``re`` backtracks: one expression could block the broker for hours. RE2 does not, and it is what Kafka uses
(as re2j). Large expressions are rejected, so that neither compiling one nor matching a name takes long.
"""

from __future__ import annotations

from collections.abc import Iterable

import re2

MAX_LENGTH = 10_000
MAX_UNICODE_CLASSES = 100
"""Each ``\\p`` takes RE2 a tenth of a millisecond to read, even if it then rejects the expression as too large."""

_OPTIONS = re2.Options()
_OPTIONS.max_mem = 1 << 20
"""Bytes for the program and its states: about 10,000 instructions, and 20 ms for the longest topic name at worst."""
_OPTIONS.never_capture = True
_OPTIONS.log_errors = False
_ADVICE = {
    "invalid repetition size": "counts, multiplied if nested, may be at most 1,000; in {n,m} n may not exceed m",
    "pattern too large": "use smaller counts, or * and + instead",
}
"""What to do about errors that do not say so."""


class InvalidPattern(ValueError):
    """The expression is not valid in RE2, or too large."""


class Pattern:
    """A compiled expression. RE2 caches the last 128 of them.

    >>> Pattern("orders-(eu|us)").matches("orders-eu"), Pattern("orders").matches("orders-eu")
    (True, False)
    """

    __slots__ = ("_compiled",)

    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise InvalidPattern(f"expression too large: it has more than {MAX_LENGTH:,} characters")
        if text.count("\\p") + text.count("\\P") > MAX_UNICODE_CLASSES:
            raise InvalidPattern(f"expression too large: it has more than {MAX_UNICODE_CLASSES} classes such as \\pL")
        try:
            self._compiled = re2.compile(text, _OPTIONS)
        except re2.error as error:
            raise InvalidPattern(_explained(error.args[0].decode(errors="replace"))) from None

    def matches(self, name: str) -> bool:
        """Return whether the whole name matches."""
        return self._compiled.fullmatch(name) is not None

    def matching(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the names that match, in their order."""
        return tuple(filter(self.matches, names))


def _explained(problem: str) -> str:
    return next((f"{problem} ({advice})" for start, advice in _ADVICE.items() if problem.startswith(start)), problem)
