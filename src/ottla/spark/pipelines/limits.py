"""Limits: how many rows may break a rule, and when a run has exceeded a limit. Does not need Spark.

    watch = Watch(parse_limit("1%"))
    watch.add(Counted(rows=5_000, violations=60))
    watch.exceeded                                # 60 of 5,000 rows are more than 1 %

A count is compared with the whole run. A percentage is compared with the latest micro-batches that together have
`WINDOW` rows: a large batch is judged by itself, small ones together, so that one bad row of three does not stop a
stream. A run that ends by itself is also judged as a whole, however small.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from fractions import Fraction

WINDOW = 1_000
#: Without a limit for dead letters, a run fails if it had at least so many records and all were broken.
ALL_OF = 10
_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*%")


@dataclass(frozen=True, slots=True)
class Counted:
    """Rows that a rule has seen, and those that broke it."""

    rows: int = 0
    violations: int = 0

    def __add__(self, other: Counted) -> Counted:
        return Counted(self.rows + other.rows, self.violations + other.violations)

    def __str__(self) -> str:
        """
        >>> str(Counted(1200, 37)), str(Counted(0, 0))
        ('37 of 1,200 (3.1 %)', '0 of 0')
        """
        share = f" ({100 * self.violations / self.rows:.2g} %)" if self.violations and self.rows else ""
        return f"{self.violations:,} of {self.rows:,}{share}"


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit as declared: a number of rows, a share of them, or (without both) not all of them."""

    count: int | None = None
    share: Fraction | None = None

    def is_exceeded(self, found: Counted, *, window: int = 0) -> bool:
        """Whether there are too many violations; a share is of at least `window` rows."""
        if self.count is not None:
            return found.violations > self.count
        if self.share is not None:
            return found.violations > self.share * max(found.rows, window)
        return found.violations == found.rows and found.rows >= max(ALL_OF, window)

    def __str__(self) -> str:
        """
        >>> str(parse_limit(100)), str(parse_limit("0.50 %")), str(NOT_ALL)
        ('100', '0.5%', 'not all')
        """
        if self.count is not None:
            return f"{self.count:,}"
        return "not all" if self.share is None else f"{float(self.share * 100):g}%"


NOT_ALL = Limit()


def parse_limit(given: int | str) -> Limit:
    """Parse `at_most`; raises ValueError.

    >>> parse_limit("1%").share
    Fraction(1, 100)
    """
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return Limit(count=given)
    found = _SHARE.fullmatch(given.strip()) if isinstance(given, str) else None
    if found is None or Fraction(found[1]) > 100:
        raise ValueError(f'must be a number of rows or a percentage, such as 100 or "1%", not {given!r}')
    return Limit(share=Fraction(found[1]) / 100)


class Watch:
    """Counts the batches of a run for one rule in one flow, and judges them."""

    def __init__(self, limit: Limit | None) -> None:
        self.limit = limit
        self.total = Counted()
        self.last = Counted()
        """The last batch with rows."""
        self.exceeded: Counted | None = None
        """The rows that were too many: of the run, of a batch, or of several small ones."""
        self._recent: deque[Counted] = deque()
        self._window = Counted()

    def add(self, found: Counted) -> None:
        """Add a batch."""
        if not found.rows:
            return
        self.last, self.total = found, self.total + found
        self._recent.append(found)
        self._window += found
        while self._window.rows - self._recent[0].rows >= WINDOW:
            first = self._recent.popleft()
            self._window = Counted(self._window.rows - first.rows, self._window.violations - first.violations)
        self._judge(self.total if self.limit is not None and self.limit.count is not None else self._window, WINDOW)

    def end(self) -> None:
        """Judge the whole run, at its end."""
        self._judge(self.total, 0)

    def _judge(self, found: Counted, window: int) -> None:
        if self.exceeded is None and self.limit is not None and self.limit.is_exceeded(found, window=window):
            self.exceeded = found
