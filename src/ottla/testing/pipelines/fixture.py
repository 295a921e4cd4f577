"""What the pytest fixture ``ottla_pipeline`` gives to a test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ottla.spark.pipelines.declaration import Pipeline
from ottla.testing.pipelines.cases import case_files
from ottla.testing.pipelines.records import Batch
from ottla.testing.pipelines.registered import Files
from ottla.testing.pipelines.results import Result
from ottla.testing.pipelines.running import Bench
from ottla.testing.pipelines.suites import load_case, load_for_test, run_case


@dataclass(frozen=True, slots=True)
class PipelineTest:
    """A pipeline that can be run over sample records.

    run = ottla_pipeline("orders.toml")
    result = run({"orders": [{"id": 1, "at": "2026-01-01T12:00:00Z"}, b"not JSON"]})
    """

    pipeline: Pipeline
    bench: Bench
    schemas: Files = field(default_factory=dict)

    def __call__(self, *batches: Batch, tables: Mapping[str, Sequence[Any]] | None = None) -> Result:
        """Run over micro-batches, each with the records of the sources; `tables` replaces the rows of tables.

        Raises DeclarationError for invalid SQL, with the line of the step, and PipelineFailed if a flow fails.
        """
        return self.bench.run(self.pipeline, batches, tables=tables, schemas=self.schemas)


class Pipelines:
    """Load pipelines for tests; relative paths start at `directory`."""

    def __init__(self, bench: Bench, directory: Path) -> None:
        self._bench = bench
        self._directory = directory

    def __call__(
        self,
        pipeline: str | Path | Pipeline,
        *,
        tables: Sequence[str] = (),
        schemas: Mapping[str, Sequence[str | Path]] | None = None,
    ) -> PipelineTest:
        """A pipeline from a file, or one that was built in Python. Files of `tables` need not exist.

        `schemas` has the files of the versions of each subject, which take the place of a registry.
        """
        files = {subject: [self._directory / one for one in some] for subject, some in (schemas or {}).items()}
        if not isinstance(pipeline, Pipeline):
            pipeline = load_for_test(self._directory / pipeline, tables, files)
        return PipelineTest(pipeline, self._bench, files)

    def check(self, file: str | Path, *cases: str) -> None:
        """Run the stored cases of a pipeline, or some of them; fails with all differences."""
        __tracebackhide__ = True
        path = self._directory / file
        outcomes = [run_case(self._bench, load_case(path, one)) for one in case_files(path, cases)]
        failed = [one for one in outcomes if not one.passed]
        if failed:
            lines = [line for one in failed for line in (f"{one.file}:", *(f"  {line}" for line in one.lines))]
            raise AssertionError("\n".join(lines))


def pipeline_cases(pipeline: str | Path) -> list[str]:
    """The names of the stored cases, to make each of them a test of its own.

    FILE = Path(__file__).parent / "orders.toml"

    @pytest.mark.parametrize("case", pipeline_cases(FILE))
    def test_orders(ottla_pipeline, case):
        ottla_pipeline.check(FILE, case)
    """
    return [file.stem for file in case_files(pipeline)]
