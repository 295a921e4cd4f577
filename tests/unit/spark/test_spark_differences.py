"""docs/spark.md has the differences from Spark's Kafka source that `make compat-spark` expects."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from tests.compat_spark.__main__ import CASES, table
from tests.compat_spark.differences import REASONS

PAGE = Path(__file__).parents[3] / "docs" / "spark.md"


def test_the_page_has_the_table() -> None:
    assert table() in PAGE.read_text("utf-8"), "run  make compat-spark ARGS='--docs docs/spark.md'"


def test_each_difference_belongs_to_one_case() -> None:
    names = [one.name for one in CASES]
    assert [name for name in REASONS if names.count(name) != 1] == []
