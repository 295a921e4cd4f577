"""Differences between expected and actual rows, and expected rows that are written back."""

from __future__ import annotations

import tomllib
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.testing.pipelines.comparing import compare, same
from ottla.testing.pipelines.toml_text import rows_text, with_rows

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        (5, 5.0),
        (0.3, 0.1 + 0.2),
        (float("nan"), float("nan")),
        (5, Decimal("5.00")),
        (12.3, Decimal("12.30")),
        ("12.30", Decimal("12.30")),
        ("2026-01-01T12:00:00Z", NOON),
        ("2026-01-01 12:00:00", NOON),
        (datetime(2026, 1, 1, 12), NOON),  # noqa: DTZ001 (as in TOML without a zone)
        (NOON.astimezone(timezone(timedelta(hours=2))), NOON),
        (NOON, "2026-01-01T12:00:00.000Z"),
        ("2026-01-01", date(2026, 1, 1)),
        ("text", b"text"),
        ("/wA=", b"\xff\x00"),
        ({"a": 1}, {"a": 1, "b": None}),
        ([1, None], [1.0, None]),
    ],
)
def test_values_are_the_same_by_meaning(expected: Any, actual: Any) -> None:
    assert same(expected, actual)


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        (5, "5"),
        (1, True),
        (True, 1),
        (5, 6),
        (2**60, 2**60 + 1),
        ("2026-01-01T12:00:01Z", NOON),
        ("2026-01-01", NOON),
        ("noon", NOON),
        (5, NOON),
        (None, 0),
        ([1], [1, 1]),
        ({"a": 1}, {"a": 1, "b": 2}),
        ("x", Decimal(1)),
    ],
)
def test_values_differ(expected: Any, actual: Any) -> None:
    assert not same(expected, actual)


def lines(expected: list[Any], actual: list[Any], **options: Any) -> list[str]:
    found = compare(options.pop("sink", "table"), expected, actual, **options)
    return [] if found is None else found.lines


def test_order_counts_only_on_request() -> None:
    assert lines([{"id": 1}, {"id": 2}], [{"id": 2}, {"id": 1}]) == []
    assert lines([{"id": 1}, {"id": 2}], [{"id": 2}, {"id": 1}], ordered=True) == [
        "table: the rows are in another order",
        "    - {id = 1}",
        "    - {id = 2}",
        "    + {id = 2}",
        "    + {id = 1}",
    ]


def test_rows_are_counted() -> None:
    assert lines([{"id": 1}], [{"id": 1}, {"id": 1}]) == [
        "table: 1 row unexpected, 1 row as expected",
        "    + {id = 1}",
    ]


def test_a_changed_row_is_shown_beside_the_expected_one() -> None:
    expected = [{"id": 1, "total": 5.0, "at": NOON}, {"id": 2, "total": 7}]
    actual = [{"id": 2, "total": 7.0}, {"id": 1, "total": "5.0", "at": NOON, "note": "x"}]
    assert lines(expected, actual) == [
        "table: 1 row missing, 1 row unexpected, 1 row as expected",
        "    - {id = 1, total = 5.0, at = 2026-01-01T12:00:00Z}",
        '    + {id = 1, total = "5.0", at = 2026-01-01T12:00:00Z, note = "x"}',
        '      total: expected 5.0, got "5.0"',
        '      note: expected null, got "x"',
    ]


def test_columns_of_the_origin_count_if_they_are_written() -> None:
    actual = [{"id": 1, "_key": "a", "_offset": 0, "_timestamp": NOON}]
    assert lines([{"id": 1}], actual) == []
    assert lines([{"id": 1, "_offset": 0}], actual) == []
    assert '      _key: expected "b", got "a"' in lines([{"id": 1, "_key": "b"}], actual)


def test_each_dead_letter_is_compared_by_what_it_has() -> None:
    actual = [{"reason": "total is false (rule positive)", "value": "x"}, {"reason": "malformed JSON", "value": "y"}]
    assert lines([{"reason": "rule positive"}, {"value": "y"}], actual, sink="dead_letters") == []
    vague_first = [{"reason": "JSON"}, {"reason": "JSON", "value": "y"}]
    twice = [*actual[1:], {"reason": "malformed JSON", "value": "z"}]
    assert lines(vague_first, twice, sink="dead_letters") == []
    assert lines([{"reason": "rule positive", "value": "y"}, {"value": "y"}], actual, sink="dead_letters") != []


def test_dead_letters_match_by_a_part_of_the_reason() -> None:
    actual = [{"reason": "malformed JSON at line 1", "value": "x", "key": None, "topic": "orders"}]
    assert lines([{"reason": "malformed JSON"}], actual, sink="dead_letters") == []
    assert lines([{"value": "x"}], actual, sink="dead_letters") == []
    assert lines([{"reason": "missing"}], actual, sink="dead_letters") != []
    assert lines([], actual, sink="dead_letters") == [
        "dead_letters: 1 row unexpected",
        '    + {reason = "malformed JSON at line 1", value = "x"}',
    ]


def test_long_differences_are_cut() -> None:
    found = lines([], [{"id": number} for number in range(50)])
    assert len(found) == 22
    assert found[-1] == "    … and 30 more"


# ── Writing expected rows ─────────────────────────────────────────────────────────────────────────────────────────────

BEFORE = """\
# An order is late.
[[batch]]
orders = [{id = 1}]   # the first

[expected]
# Only the first one.
table = [
  {id = 9},   # wrong
]

# None.
dead_letters = []

# The end.
"""


def test_only_the_rows_are_replaced() -> None:
    assert (
        with_rows(BEFORE, "expected", {"table": [{"id": 1, "note": None}], "large": []})
        == """\
# An order is late.
[[batch]]
orders = [{id = 1}]   # the first

[expected]
# Only the first one.
table = [
  {id = 1},
]

# None.
dead_letters = []
large = []

# The end.
"""
    )


def test_the_table_of_expected_rows_is_added() -> None:
    assert with_rows("[[batch]]\no = []", "expected", {"t": [{"id": 1}]}) == (
        "[[batch]]\no = []\n\n[expected]\nt = [\n  {id = 1},\n]\n"
    )
    assert with_rows("[expected]\n[[batch]]\no = []\n", "expected", {"t": []}) == (
        "[expected]\nt = []\n[[batch]]\no = []\n"
    )


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary()
    | st.dates()
    | st.datetimes(timezones=st.just(UTC))
    | st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**20), max_value=10**20, places=3),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text("ab é\"'", min_size=1), inside, max_size=3),
    max_leaves=8,
)
ROWS = st.lists(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), VALUES), max_size=4)


@given(ROWS, ROWS)
def test_written_rows_are_read_back_as_the_same(rows: list[Any], others: list[Any]) -> None:
    import json

    text = with_rows("# first\n[expected]\n" + rows_text("t", others) + "# last\n", "expected", {"t": rows})
    assert text.startswith("# first\n")
    assert text.endswith("# last\n")
    found = tomllib.loads(text)["expected"]["t"]
    found = [json.loads(row) if isinstance(row, str) else row for row in found]
    assert compare("t", found, rows) is None
