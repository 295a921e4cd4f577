"""The Spark job of examples/services, with the session of these tests."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ottla import Broker

SERVICES = Path(__file__).parents[2] / "examples" / "services"


def test_the_job_passes_its_test(spark: SparkSession, ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SERVICES))
    tests = importlib.import_module("test_totals_job")
    tests.test_the_totals_are_right_in_spite_of_faults(spark, ottla_broker)
