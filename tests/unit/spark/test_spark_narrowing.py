"""Which ranges filters exclude, and which filters Spark still has to apply."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

datasource = pytest.importorskip("pyspark.sql.datasource")
from pyspark.sql.datasource import (  # noqa: E402
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from ottla.spark.filters import Narrowing, PushedFilters  # noqa: E402

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
NOON_MS = 1_704_110_400_000


def pushed(*filters: Filter) -> tuple[Narrowing, list[Filter]]:
    found = PushedFilters()
    left = found(list(filters))
    return found.narrowing, left


def test_topics_and_partitions_are_chosen_exactly() -> None:
    found, left = pushed(
        EqualTo(("topic",), "a"), In(("partition",), (1, 2, 7)), LessThan(("partition",), 7), IsNotNull(("partition",))
    )
    assert left == []
    assert [found.has("a", number) for number in (0, 1, 2, 7)] == [False, True, True, False]
    assert not found.has("b", 1)
    found, _ = pushed(GreaterThan(("partition",), 1), LessThanOrEqual(("partition",), 3))
    assert [number for number in range(6) if found.has("a", number)] == [2, 3]


def test_offsets_are_cut_exactly() -> None:
    found, left = pushed(GreaterThanOrEqual(("offset",), 5), LessThan(("offset",), 9))
    assert left == []
    assert found.between(0, 100) == (5, 9)
    assert found.between(7, 8) == (7, 8)
    start, end = found.between(20, 30)
    assert start == end
    start, end = found.between(0, 3)
    assert start == end
    assert pushed(EqualTo(("offset",), 4))[0].between(0, 10) == (4, 5)
    several = In(("offset",), (3, 8))
    found, left = pushed(several)
    assert found.between(0, 100) == (3, 9)
    assert left == [several]


def test_times_narrow_from_below_only() -> None:
    late = NOON + timedelta(microseconds=1)
    for one, since in (
        (GreaterThanOrEqual(("timestamp",), NOON), NOON_MS),
        (GreaterThanOrEqual(("timestamp",), late), NOON_MS + 1),
        (GreaterThan(("timestamp",), NOON), NOON_MS + 1),
        (GreaterThan(("timestamp",), late), NOON_MS + 1),
        (EqualTo(("timestamp",), NOON.astimezone(timezone(timedelta(hours=5)))), NOON_MS),
        (LessThan(("timestamp",), NOON), None),
        (GreaterThan(("timestamp",), NOON.replace(tzinfo=None)), None),
    ):
        found, left = pushed(one)
        assert found.since == since
        assert left == [one]
    both, _ = pushed(GreaterThan(("timestamp",), NOON), GreaterThan(("timestamp",), NOON - timedelta(days=1)))
    assert both.since == NOON_MS + 1


@pytest.mark.parametrize(
    "one",
    [
        Not(EqualTo(("partition",), 1)),
        EqualTo(("headers", "key"), "a"),
        EqualTo(("value",), b"x"),
        EqualNullSafe(("partition",), None),
        EqualTo(("partition",), 1.5),
        EqualTo(("offset",), True),
        IsNotNull(("value",)),
    ],
)
def test_others_are_left_to_spark(one: Any) -> None:
    found, left = pushed(one)
    assert left == [one]
    assert found == Narrowing()


def test_a_reader_shows_the_function_of_the_base_class() -> None:
    """Without the setting, Spark checks this to see that there is nothing to push down."""
    pushes = pickle.loads(pickle.dumps(PushedFilters()))
    assert pushes.__func__ is DataSourceReader.pushFilters
