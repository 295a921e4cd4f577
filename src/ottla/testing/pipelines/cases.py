"""Stored test cases: one TOML file per case, in the directory `<pipeline>.tests` next to the pipeline.

    # orders.tests/late.toml
    [[batch]]
    orders = [{id = 1, at = "2026-01-01T12:00:00Z"}]

    [[batch]]
    orders = [{id = 2, at = "2026-01-01T09:00:00Z"}, 'not JSON']

    [expected]
    table = [{id = 1, at = 2026-01-01T12:00:00Z}]
    dead_letters = [{value = "not JSON", reason = "malformed JSON"}]

Reading a case finds all its problems at once, with their lines.
"""

from __future__ import annotations

import csv
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ottla.errors import OttlaError
from ottla.spark.pipelines.declaration import DeclarationError, Pipeline, Problem
from ottla.spark.pipelines.toml.lines import Path as KeyPath
from ottla.spark.pipelines.toml.lines import locate
from ottla.suggestions import did_you_mean
from ottla.testing.pipelines.records import Batch, RecordError, encoded
from ottla.testing.pipelines.registered import Files, Schemas, subjects, unregistered

DEAD_LETTERS = "dead_letters"
_KEYS = ("batch", "registry", "tables", "expected", "broken_rules", "fails", "ordered")
_LETTER_KEYS = ("reason", "value", "key", "topic", "partition", "offset")

Row = Mapping[str, Any]


class NoCases(OttlaError):
    """A pipeline without tests."""


@dataclass(frozen=True, slots=True)
class Case:
    """A test case: input records by micro-batch, and the expected rows by sink."""

    file: Path
    batches: tuple[Batch, ...] = ()
    schemas: Files = field(default_factory=dict)
    """The schemas that take the place of a registry."""
    tables: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    """Rows that replace the contents of tables."""
    expected: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    """The rows of each sink that is compared; without `dead_letters`, there must be none."""
    broken_rules: Mapping[str, int] = field(default_factory=dict)
    """How many rows break a rule, for the rules that are compared."""
    fails: str | None = None
    """A part of the message with which the run must fail."""
    ordered: bool = False
    """Whether the order of rows matters."""
    files: Mapping[str, Path] = field(default_factory=dict)
    """The files of expected rows that are not in the case itself."""

    @property
    def name(self) -> str:
        return self.file.stem


def directory_of_tests(pipeline: str | Path) -> Path:
    """The directory of the tests of a pipeline.

    >>> directory_of_tests("pipelines/orders.toml").as_posix()
    'pipelines/orders.tests'
    """
    return Path(pipeline).with_suffix(".tests")


def case_files(pipeline: str | Path, names: Sequence[str] = ()) -> list[Path]:
    """The files of all cases, or of the named ones; raises NoCases."""
    directory = directory_of_tests(pipeline)
    found = {path.stem: path for path in sorted(directory.glob("*.toml"))}
    if not found:
        raise NoCases(f"{pipeline} has no tests: write the first one as {directory}/NAME.toml")
    for name in names:
        if name not in found:
            near = did_you_mean(name, found) or f" The cases are {', '.join(found)}."
            raise NoCases(f"{directory} has no case {name}.{near}")
    return [path for name, path in found.items() if name in names or not names]


def read_case(file: Path, pipeline: Pipeline) -> Case:
    """Read a case of a pipeline; raises DeclarationError with all problems."""
    try:
        text = file.read_text(encoding="utf-8")
        data = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise DeclarationError([Problem(str(file), None, f"not UTF-8 text ({error.reason})")]) from None
    except tomllib.TOMLDecodeError as error:
        raise DeclarationError([Problem(str(file), None, f"invalid TOML: {error}")]) from None
    return _Reader(file, locate(text), pipeline).case(data)


class _Reader:
    def __init__(self, file: Path, lines: Mapping[KeyPath, int], pipeline: Pipeline) -> None:
        self._file = file
        self._lines = lines
        self._pipeline = pipeline
        self._problems: list[Problem] = []
        self._files: dict[str, Path] = {}
        self._registered: Schemas = {}

    def case(self, data: dict[str, Any]) -> Case:
        for key in data:
            if key not in _KEYS:
                near = did_you_mean(key, _KEYS) or f" The keys are {', '.join(_KEYS)}."
                self._report((key,), f"a test case has no key {key}.{near}")
        self._check_plain(data)
        files = dict(self._schemas(data.get("registry", {})))
        self._registered = unregistered(files)
        found = Case(
            self._file,
            schemas=files,
            batches=tuple(self._batches(data.get("batch"))),
            tables=dict(self._rows("tables", data.get("tables", {}), [one.name for one in self._pipeline.tables])),
            expected=dict(self._rows("expected", data.get("expected", {}), self._sinks())),
            broken_rules=dict(self._rules(data.get("broken_rules", {}))),
            fails=data.get("fails"),
            ordered=data.get("ordered", False),
            files=self._files,
        )
        if not (found.expected or found.broken_rules) and found.fails is None and not self._problems:
            self._report((), "the case expects nothing: add [expected] with the rows of a sink, or fails")
        if found.expected and found.fails is not None:
            self._report(("fails",), "a run that fails has no complete rows: remove either fails or [expected]")
        if self._problems:
            raise DeclarationError(self._problems)
        return found

    def _check_plain(self, data: Mapping[str, Any]) -> None:
        fails = data.get("fails")
        if fails is not None and not (isinstance(fails, str) and fails.strip()):
            self._report(("fails",), 'fails must be a part of the error message, such as "DIVIDE_BY_ZERO"')
        if not isinstance(data.get("ordered", False), bool):
            self._report(("ordered",), "ordered must be true or false")

    def _rules(self, given: Any) -> Iterator[tuple[str, int]]:
        if not isinstance(given, dict):
            self._report(("broken_rules",), "broken_rules is a table: write broken_rules = {rule = 1}")
            return
        known = [one.name for one in self._pipeline.expects]
        for name, count in given.items():
            if name not in known:
                near = did_you_mean(name, known) or (f" The rules are {', '.join(known)}." if known else "")
                self._report(("broken_rules", name), f"{self._pipeline_file} has no rule {name}.{near}")
            elif isinstance(count, bool) or not isinstance(count, int) or count < 0:
                self._report(("broken_rules", name), f"{name} must be a number of rows, not {count!r}")
            else:
                yield name, count

    def _sinks(self) -> list[str]:
        return [*(one.name for one in self._pipeline.sinks), DEAD_LETTERS]

    # ── Inputs ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _batches(self, given: Any) -> Iterator[Batch]:
        if not isinstance(given, list) or not all(isinstance(one, dict) for one in given) or not given:
            self._report(("batch",), "the case has no input: add [[batch]] and the records of a source below it")
            return
        for number, one in enumerate(given):
            yield {name: self._records(("batch", number, name), name, value) for name, value in one.items()}

    def _records(self, path: KeyPath, name: str, given: Any) -> list[Any]:
        source = next((one for one in self._pipeline.sources if one.name == name), None)
        if source is None:
            names = [one.name for one in self._pipeline.sources]
            near = did_you_mean(name, names) or f" The sources are {', '.join(names)}."
            self._report(path, f"{self._pipeline_file} has no source {name}.{near}")
            return []
        records = self._listed(path, given)
        for number, one in enumerate(records):
            try:
                encoded(one, source, self._pipeline, self._registered)
            except RecordError as error:
                self._report((*path, number), f"record {number + 1} of {name}: {error}")
        return records

    def _schemas(self, given: Any) -> Iterator[tuple[str, list[Path]]]:
        if not isinstance(given, dict):
            self._report(
                ("registry",), 'registry is a table: write [registry] and orders-value = "order.avsc" below it'
            )
            return
        known = subjects(self._pipeline)
        for subject, names in given.items():
            path: KeyPath = ("registry", subject)
            if subject not in known:
                near = did_you_mean(subject, known) or (f" The subjects are {', '.join(known)}." if known else "")
                self._report(path, f"no source of {self._pipeline_file} reads the subject {subject}.{near}")
                continue
            some = [names] if isinstance(names, str) else names
            if not isinstance(some, list) or not some or not all(isinstance(one, str) for one in some):
                self._report(path, f"{subject} must be a file with a schema, or a list of them, oldest first")
                continue
            files = [self._other_file(path, {"file": one}) for one in some]
            if None not in files:
                yield subject, [one for one in files if one is not None]

    def _listed(self, path: KeyPath, given: Any) -> list[Any]:
        """A list, the lines of a text, or the lines of a file."""
        if isinstance(given, list):
            return given
        if isinstance(given, str):
            return [line for line in given.splitlines() if line.strip()]
        file = self._other_file(path, given)
        if file is None:
            return []
        return [line for line in file.read_text(encoding="utf-8", errors="surrogateescape").splitlines() if line]

    def _other_file(self, path: KeyPath, given: Any) -> Path | None:
        if not (isinstance(given, dict) and set(given) == {"file"} and isinstance(given["file"], str)):
            self._report(path, f'{path[-1]} must be a list, a text with lines, or {{file = "…"}}')
            return None
        file = self._file.parent / given["file"]
        if not file.is_file():
            self._report(path, f"file {file} not found")
            return None
        return file

    # ── Rows ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _rows(self, table: str, given: Any, known: Sequence[str]) -> Iterator[tuple[str, list[Row]]]:
        if not isinstance(given, dict):
            self._report((table,), f"{table} is a table: write [{table}] and the rows below it")
            return
        for name, value in given.items():
            path = (table, name)
            if name not in known:
                what = "table" if table == "tables" else "sink"
                near = did_you_mean(name, known) or f" The {what}s are {', '.join(known)}."
                self._report(path, f"{self._pipeline_file} has no {what} {name}.{near}")
                continue
            rows = [self._row((*path, number), one) for number, one in enumerate(self._given_rows(path, value))]
            if name == DEAD_LETTERS and table == "expected":
                self._check_letters(path, rows)
            yield name, rows

    def _given_rows(self, path: KeyPath, given: Any) -> list[Any]:
        if isinstance(given, dict) and str(given.get("file", "")).endswith(".csv"):
            file = self._other_file(path, given)
            if file is None:
                return []
            self._files[str(path[-1])] = file
            with file.open(newline="", encoding="utf-8") as stream:
                return [{name: _cell(text) for name, text in row.items()} for row in csv.DictReader(stream)]
        if isinstance(given, dict) and "file" in given and (file := self._other_file(path, given)) is not None:
            self._files[str(path[-1])] = file
        return self._listed(path, given)

    def _row(self, path: KeyPath, given: Any) -> Row:
        """A row: a table, or a JSON object as text, which can have nulls."""
        if isinstance(given, dict):
            return given
        if isinstance(given, str):
            try:
                found = json.loads(given)
            except ValueError:
                found = None
            if isinstance(found, dict):
                return found
            if path[:1] == ("expected",) and path[1] != DEAD_LETTERS:
                return {"_value": given}  # a record of a topic that is not JSON
        self._report(path, f"a row is a table such as {{id = 1}}, or JSON text, not {given!r}")
        return {}

    def _check_letters(self, path: KeyPath, rows: Sequence[Row]) -> None:
        for number, row in enumerate(rows):
            for key in row:
                if key not in _LETTER_KEYS:
                    near = did_you_mean(key, _LETTER_KEYS) or f" The keys are {', '.join(_LETTER_KEYS)}."
                    self._report((*path, number), f"a dead letter has no key {key}.{near}")

    @property
    def _pipeline_file(self) -> str:
        return Path(self._pipeline.where.file).name

    def _report(self, path: KeyPath, message: str) -> None:
        line = next((self._lines[path[:size]] for size in range(len(path), 0, -1) if path[:size] in self._lines), None)
        self._problems.append(Problem(str(self._file), line, message))


def _cell(text: str | None) -> Any:
    """A CSV cell: empty is null, JSON numbers and booleans are values, anything else is text."""
    if not text:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return found if isinstance(found, bool | int | float) else text
