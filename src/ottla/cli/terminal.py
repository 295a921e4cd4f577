"""Tables, numbers, notes and progress for people. Data goes to stdout, everything else to stderr."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Sequence
from typing import TextIO

from ottla.wording import plural as plural

PROGRESS_SECONDS = 0.2


def table(headers: Sequence[str], rows: Sequence[Sequence[object]], *, indent: str = "") -> str:
    """Format a table; columns of whole numbers are right-aligned.

    >>> print(table(["TOPIC", "PARTITIONS"], [["orders", 3]]))
    TOPIC   PARTITIONS
    orders           3
    """
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
    right = [bool(rows) and all(isinstance(row[i], int) for row in rows) for i in range(len(headers))]
    lines = [_line(row, widths, right) for row in (list(headers), *cells)]
    return "\n".join((indent + line).rstrip() for line in lines)


def _cell(value: object) -> str:
    return "-" if value is None else printable(str(value))


def printable(text: str) -> str:
    r"""Escape control characters: clients choose their names, and could send terminal sequences.

    >>> print(printable("a\x1b[2J\nb"))
    a\x1b[2J\nb
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def _line(row: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    aligned = zip(row, widths, right, strict=True)
    return "  ".join(cell.rjust(width) if is_right else cell.ljust(width) for cell, width, is_right in aligned)


def print_json(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def megabytes(size: float) -> str:
    """Format a size in decimal units.

    >>> megabytes(1234), megabytes(56_789_000), megabytes(7_100_000_000)
    ('1.2 kB', '56.8 MB', '7.1 GB')
    """
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size:.0f} B"


def note(message: str) -> None:
    """Print a message if stderr is a terminal."""
    if sys.stderr.isatty():
        print(message, file=sys.stderr, flush=True)


class LiveLine:
    """A line that is overwritten on a terminal, and printed as a normal line elsewhere."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_live = stream.isatty()
        self._shown = False

    def show(self, text: str) -> None:
        # A line that wraps cannot be overwritten.
        line = f"\r\x1b[K{text[: shutil.get_terminal_size().columns - 1]}" if self.is_live else f"{text}\n"
        self._stream.write(line)
        self._stream.flush()
        self._shown = self.is_live

    def clear(self) -> None:
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._shown = False


class Progress:
    """Progress on stderr, if it is a terminal."""

    def __init__(self, *, enabled: bool = True) -> None:
        self._line = LiveLine(sys.stderr)
        self._enabled = enabled and self._line.is_live
        self._start = time.monotonic()
        self._next = self._start + PROGRESS_SECONDS
        self.clear = self._line.clear

    @property
    def seconds(self) -> float:
        return max(time.monotonic() - self._start, 1e-6)

    def update(self, records: int, size: int) -> None:
        now = time.monotonic()
        if self._enabled and now >= self._next:
            self._next = now + PROGRESS_SECONDS
            rates = f"{records / self.seconds:,.0f} records/s  {megabytes(size / self.seconds)}/s"
            self._line.show(f"{plural(records, 'record')}  {megabytes(size)}  {rates}")
