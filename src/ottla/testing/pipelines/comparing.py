"""Compare expected with actual rows, and describe the differences.

Values are compared by meaning: 5 equals 5.0, a text equals the time that it names, and a column that is not written is
null. Columns of the origin count only if an expected row has them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from ottla.testing.pipelines.cases import DEAD_LETTERS, Case
from ottla.testing.pipelines.results import Result, Row, is_origin, letter_row
from ottla.testing.pipelines.toml_text import inline, text_of

SHOWN_ROWS = 20
Same = Callable[[Mapping[str, Any], Mapping[str, Any]], bool]


@dataclass(frozen=True, slots=True)
class Difference:
    """Where the rows of a sink differ from the expected ones."""

    sink: str
    missing: Sequence[Mapping[str, Any]]
    """Expected rows that are not there."""
    unexpected: Sequence[Row]
    same: int
    is_order: bool = False
    """The rows are the expected ones, in another order."""

    @property
    def lines(self) -> list[str]:
        if self.is_order:
            return [
                f"{self.sink}: the rows are in another order",
                *_rows("-", self.missing),
                *_rows("+", self.unexpected),
            ]
        return [f"{self.sink}: {self._counts()}", *self._pairs()]

    def _counts(self) -> str:
        counts = [(len(self.missing), "missing"), (len(self.unexpected), "unexpected"), (self.same, "as expected")]
        return ", ".join(f"{count} {'row' if count == 1 else 'rows'} {what}" for count, what in counts if count)

    def _pairs(self) -> list[str]:
        """Each missing row beside the most similar unexpected one."""
        left = list(self.unexpected)
        lines: list[str] = []
        for row in self.missing[:SHOWN_ROWS]:
            lines += _rows("-", [row])
            near = max(left, key=lambda one: _likeness(row, one), default=None)
            if near is not None and _likeness(row, near) > 0:
                left.remove(near)
                lines += [*_rows("+", [near]), *(f"      {one}" for one in _cells(row, near))]
        lines += _rows("+", left[:SHOWN_ROWS])
        more = max(len(self.missing) - SHOWN_ROWS, 0) + max(len(left) - SHOWN_ROWS, 0)
        return [*lines, f"    … and {more} more"] if more else lines


def differences(case: Case, result: Result) -> list[Difference]:
    """All differences; dead letters that the case does not mention are unexpected."""
    found = [
        compare(sink, rows, result.rows.get(sink, ()), ordered=case.ordered)
        for sink, rows in case.expected.items()
        if sink != DEAD_LETTERS
    ]
    letters = [letter_row(one) for one in result.dead_letters]
    found.append(compare(DEAD_LETTERS, case.expected.get(DEAD_LETTERS, ()), letters, ordered=case.ordered))
    return [one for one in found if one is not None]


def rule_lines(case: Case, result: Result) -> list[str]:
    """The rules that another number of rows has broken."""
    counts = {name: (count, result.broken_rules.get(name, 0)) for name, count in case.broken_rules.items()}
    return [
        f"rule {name}: expected {expected} broken, got {actual}"
        for name, (expected, actual) in counts.items()
        if expected != actual
    ]


def compare(
    sink: str, expected: Sequence[Mapping[str, Any]], actual: Sequence[Row], *, ordered: bool = False
) -> Difference | None:
    """The difference of two lists of rows; None if they are the same."""
    shown = [seen(sink, expected, row) for row in actual]
    letters = sink == DEAD_LETTERS
    same: Same = _same_letter if letters else _same_row
    left, missing = list(shown), []
    for row in sorted(expected, key=len, reverse=True) if letters else expected:  # the most exact letters first
        found = next((number for number, one in enumerate(left) if same(row, one)), None)
        if found is None:
            missing.append(row)
        else:
            del left[found]
    if missing or left:
        return Difference(sink, missing, left, len(shown) - len(left))
    if ordered and not all(same(row, one) for row, one in zip(expected, shown, strict=True)):
        return Difference(sink, expected, shown, 0, is_order=True)
    return None


def seen(sink: str, expected: Sequence[Mapping[str, Any]], row: Row) -> Row:
    """The part of an actual row that is compared, without nulls."""
    named = {name for one in expected for name in one}
    if sink == DEAD_LETTERS:
        wanted = [name for name in row if name in (named or {"reason", "value"})]
    else:
        wanted = [name for name in row if name in named or not is_origin(name)]
    return {name: row[name] for name in wanted if row[name] is not None}


def _same_letter(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> bool:
    """What the expected letter has; a part of the reason is enough."""
    said = str(expected.get("reason", "")) in str(actual.get("reason"))
    return said and all(same(value, actual.get(name)) for name, value in expected.items() if name != "reason")


def _same_row(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> bool:
    return all(same(expected.get(name), actual.get(name)) for name in {*expected, *actual})


def same(expected: Any, actual: Any) -> bool:
    """Whether a written value means the actual one.

    >>> same(5, 5.0), same("2026-01-01", date(2026, 1, 1)), same("5", 5)
    (True, True, False)
    """
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        return _same_row(expected, actual)
    if isinstance(expected, list | tuple) and isinstance(actual, list | tuple):
        return len(expected) == len(actual) and all(map(same, expected, actual))
    if isinstance(actual, bytes):
        return bool(expected == actual or expected == text_of(actual))
    if isinstance(actual, date) or isinstance(expected, date):
        return _same_time(expected, actual)
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    if isinstance(actual, Decimal):
        return _decimal(expected) == actual
    if isinstance(expected, int | float | Decimal) and isinstance(actual, int | float):
        return _same_number(expected, actual)
    return bool(expected == actual)


def _same_number(expected: int | float | Decimal, actual: int | float) -> bool:
    if isinstance(expected, int) and isinstance(actual, int):
        return expected == actual
    return math.isclose(expected, actual, rel_tol=1e-9) or (math.isnan(expected) and math.isnan(actual))


def _decimal(given: Any) -> Decimal | None:
    try:
        return Decimal(str(given)) if not isinstance(given, bool) else None
    except InvalidOperation:
        return None


def _same_time(expected: Any, actual: Any) -> bool:
    """Times as text are read; a time without a zone is in the zone of the other."""
    one, other = _time(expected), _time(actual)
    if one is None or other is None:
        return False
    if isinstance(one, datetime) and isinstance(other, datetime):
        if one.tzinfo is None or other.tzinfo is None:
            return one.replace(tzinfo=None) == other.replace(tzinfo=None)
        return one == other
    return type(one) is type(other) and one == other


def _time(given: Any) -> date | None:
    if isinstance(given, date):
        return given
    if not isinstance(given, str):
        return None
    for parse in (date.fromisoformat, datetime.fromisoformat):
        try:
            return parse(given)
        except ValueError:
            continue
    return None


# ── Describing ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _rows(sign: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [f"    {sign} {inline(row)}" for row in rows]


def _likeness(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> int:
    return sum(same(value, actual.get(name)) for name, value in expected.items())


def _cells(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> list[str]:
    names = dict.fromkeys([*expected, *actual])
    return [
        f"{name}: expected {inline(expected.get(name))}, got {inline(actual.get(name))}"
        for name in names
        if not same(expected.get(name), actual.get(name))
    ]
