"""The tests of all recipes in examples/cookbook, on a real Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.testing.pipelines.running import Bench
from ottla.testing.pipelines.suites import load_case, run_case

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long]

CASES = sorted((Path(__file__).parents[2] / "examples" / "cookbook").glob("*/*.tests/*.toml"))


@pytest.mark.parametrize("case", CASES, ids=lambda path: f"{path.parent.parent.name}-{path.stem}")
def test_a_case_of_a_recipe(spark: SparkSession, case: Path) -> None:
    pipeline = case.parent.with_suffix(".toml")
    outcome = run_case(Bench(spark), load_case(pipeline, case))
    assert outcome.passed, "\n".join(outcome.lines)
