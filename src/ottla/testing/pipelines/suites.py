"""Run the stored cases of a pipeline, and compare or update their expected rows.

with Bench() as bench:
    outcomes = [check_case(bench, "orders.toml", file) for file in case_files("orders.toml")]
"""

from __future__ import annotations

import csv
import io
import os
import sys
import time
import tomllib
from collections import UserDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ottla.spark.pipelines.checks.pipeline import check
from ottla.spark.pipelines.declaration import DeclarationError, Pipeline
from ottla.spark.pipelines.loading import read
from ottla.testing.pipelines.cases import DEAD_LETTERS, Case, read_case
from ottla.testing.pipelines.comparing import differences, rule_lines, seen
from ottla.testing.pipelines.registered import Files, without_registry
from ottla.testing.pipelines.relocation import without_tables
from ottla.testing.pipelines.results import Result, letter_row
from ottla.testing.pipelines.running import Bench, PipelineFailed
from ottla.testing.pipelines.toml_text import json_text, plain_text, with_rows

#: A variable that is not set: secrets and addresses do not matter in a test.
UNSET = "test"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case."""

    pipeline: str
    case: str
    file: Path
    seconds: float = 0.0
    lines: Sequence[str] = ()
    """The differences or the failure, for people; empty if the case passed."""
    updated: bool = False

    @property
    def passed(self) -> bool:
        return not self.lines


@dataclass(frozen=True, slots=True)
class Loaded:
    """A case and its pipeline, both valid as far as this is known without Spark."""

    file: str
    """The file of the pipeline."""
    pipeline: Pipeline
    case: Case


def load_case(pipeline_file: str | Path, case_file: Path) -> Loaded:
    """Load a case; raises DeclarationError for problems in the pipeline or the case."""
    given = _given(case_file)
    pipeline = load_for_test(pipeline_file, list(given["tables"]), _schema_files(case_file, given["registry"]))
    return Loaded(str(pipeline_file), pipeline, read_case(case_file, pipeline))


def run_case(bench: Bench, loaded: Loaded, *, update: bool = False) -> Outcome:
    """Run a case; raises DeclarationError for problems that only Spark finds, such as invalid SQL."""
    started = time.monotonic()
    case, updated = loaded.case, False
    try:
        result = bench.run(loaded.pipeline, case.batches, tables=case.tables, schemas=case.schemas)
    except PipelineFailed as failed:
        lines = _unexpected_failure(case, failed)
    else:
        lines, updated = _compared(case, result, update)
    return Outcome(loaded.file, case.name, case.file, time.monotonic() - started, lines, updated)


def _unexpected_failure(case: Case, failed: PipelineFailed) -> list[str]:
    if case.fails is not None and case.fails in str(failed):
        return []
    told = f"the run must fail with {case.fails!r}, but it failed with:" if case.fails else "the run failed:"
    return [told, *(f"    {line}" for line in failed.failure.lines)]


def _compared(case: Case, result: Result, update: bool) -> tuple[list[str], bool]:
    if case.fails is not None:
        return [f"the run must fail with {case.fails!r}, but it did not fail"], False
    found = differences(case, result)
    rules = rule_lines(case, result)
    if found and update:
        _update(case, result, {one.sink for one in found})
        return rules, True
    return [*(line for one in found for line in one.lines), *rules], False


def load_for_test(path: str | Path, replaced: Collection[str] = (), schemas: Files | None = None) -> Pipeline:
    """Load a pipeline without its surroundings: no address, no variables, no files of replaced tables, and no registry
    for subjects whose schemas are given."""
    pipeline, problems = read(path, _Environment(os.environ))
    if pipeline is None or problems:
        raise DeclarationError(problems)
    object.__setattr__(pipeline, "bootstrap_servers", pipeline.bootstrap_servers or "localhost:9092")
    problems = check(without_registry(without_tables(pipeline, replaced), schemas or {}))
    if problems:
        raise DeclarationError(problems)
    return pipeline


class _Environment(UserDict[str, str]):
    def get(self, key: str, default: Any = None) -> Any:
        return super().get(key, UNSET if default is None else default)


def forget_modules(directory: Path) -> None:
    """Let the next run import changed Python steps; only for a program of its own, such as the command."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file is not None and Path(file).parent == directory and name != "__main__":
            del sys.modules[name]


def _given(case_file: Path) -> dict[str, dict[str, Any]]:
    """The tables and schemas of a case. What is wrong with them is reported by `read_case`."""
    try:
        found = tomllib.loads(case_file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        found = {}
    return {key: one if isinstance(one := found.get(key), dict) else {} for key in ("tables", "registry")}


def _schema_files(case_file: Path, given: Mapping[str, Any]) -> dict[str, list[Path]]:
    some = {subject: [names] if isinstance(names, str) else names for subject, names in given.items()}
    files = {
        subject: [case_file.parent / name for name in names if isinstance(name, str)]
        for subject, names in some.items()
        if isinstance(names, list)
    }
    return {subject: names for subject, names in files.items() if names and all(one.is_file() for one in names)}


# ── Updating ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _update(case: Case, result: Result, sinks: Collection[str]) -> None:
    """Write the actual rows of these sinks as the expected ones."""
    found = {sink: actual_rows(case, result, sink) for sink in [*case.expected, DEAD_LETTERS] if sink in sinks}
    inside = {sink: rows for sink, rows in found.items() if sink not in case.files}
    if inside:
        case.file.write_text(with_rows(case.file.read_text(encoding="utf-8"), "expected", inside), encoding="utf-8")
    for sink, file in case.files.items():
        if sink in found:
            file.write_text(_file_text(file, found[sink]), encoding="utf-8")


def actual_rows(case: Case, result: Result, sink: str) -> list[dict[str, Any]]:
    """The rows of a sink as a case would expect them; with the key of a topic unless the case left it out."""
    expected = case.expected.get(sink, ())
    if sink == DEAD_LETTERS:
        return [seen(sink, expected, letter_row(one)) for one in result.dead_letters]
    return [seen(sink, expected, row) for row in result.rows[sink]]


def _file_text(file: Path, rows: Sequence[Mapping[str, Any]]) -> str:
    if file.suffix != ".csv":
        return "".join(json_text(row) + "\n" for row in rows)
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow(["" if row.get(name) is None else plain_text(row[name]) for name in names])
    return text.getvalue()
