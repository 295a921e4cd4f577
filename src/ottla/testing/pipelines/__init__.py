"""Tests of declared pipelines: stored cases, and runs from Python. See docs/pipeline-tests.md.

`cases.py` reads stored cases, `records.py` encodes sample records, `running.py` runs a pipeline over them on an
embedded broker, `comparing.py` finds differences, and `suites.py` ties them together.
"""

from ottla.testing.pipelines.cases import Case, case_files, read_case
from ottla.testing.pipelines.fixture import PipelineTest, pipeline_cases
from ottla.testing.pipelines.results import Result
from ottla.testing.pipelines.running import Bench, PipelineFailed
from ottla.testing.pipelines.suites import Outcome, load_case, load_for_test, run_case

__all__ = [
    "Bench",
    "Case",
    "Outcome",
    "PipelineFailed",
    "PipelineTest",
    "Result",
    "case_files",
    "load_case",
    "load_for_test",
    "pipeline_cases",
    "read_case",
    "run_case",
]
