"""The counts of the last run, in the checkpoint directory: for the status, and so that an exceeded limit stays known.

    save(pipeline, board)                      # a few times per run
    exceeded(pipeline)                         # limits of the last run that are still exceeded

A limit counts as exceeded in later runs until the user has changed something about it: the limit, the rule, the steps,
or how the records are read. Spark's own checkpoint cannot tell this: the rows of that batch are processed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.errors import OttlaError
from ottla.spark.pipelines.declaration import DEAD_LETTERS, Pipeline, Source
from ottla.spark.pipelines.limits import Counted, Limit
from ottla.spark.pipelines.places import Place, place
from ottla.spark.pipelines.progress import Board, RuleProgress
from ottla.spark.pipelines.rules import limits_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = "rules.json"


class CountsError(OttlaError):
    """The counts of the last run cannot be read."""


@dataclass(frozen=True, slots=True)
class StoredRule:
    """A rule of the last run in one flow."""

    rule: str
    flow: str
    rows: int
    violations: int
    last_rows: int
    last_violations: int
    limit: str | None = None
    exceeded_rows: int | None = None
    """The rows that exceeded the limit, if they did."""
    exceeded_violations: int = 0
    meaning: str = ""
    """What the counts depend on. After a change, an exceeded limit is not held against the pipeline."""

    @property
    def progress(self) -> RuleProgress:
        over = None if self.exceeded_rows is None else Counted(self.exceeded_rows, self.exceeded_violations)
        total, last = Counted(self.rows, self.violations), Counted(self.last_rows, self.last_violations)
        return RuleProgress(self.rule, self.flow, total, last, exceeded=over)


def sentence(one: RuleProgress, file: str = "FILE") -> str:
    """Which limit was exceeded, and by how much. `file` is the pipeline, for the command that tells more."""
    assert one.exceeded is not None
    assert one.limit is not None
    if not one.rule.startswith(f"{DEAD_LETTERS}."):
        return f"rule {one.rule}: {one.exceeded} rows of flow {one.flow} broke it, at_most is {one.limit}"
    source = one.rule.removeprefix(f"{DEAD_LETTERS}.")
    if one.limit == Limit():
        return (
            f"source {source}: all {one.exceeded.rows:,} records were broken. Does the schema match the data? "
            f"`ottla pipeline replay {file} --dry-run` shows the reasons"
        )
    return f"source {source}: {one.exceeded} records became dead letters, at_most of [dead_letters] is {one.limit}"


def save(pipeline: Pipeline, board: Board, spark: SparkSession | None = None) -> None:
    """Replace the counts. A checkpoint that is not local requires Spark; without it, nothing is saved."""
    _write(pipeline, [_stored(pipeline, one) for one in board.rules()], spark)


def forget(pipeline: Pipeline, flows: Collection[str]) -> None:
    """Forget the counts of flows that start again from the beginning."""
    found = stored_rules(pipeline)
    kept = [one for one in found if one.flow not in flows]
    if kept != found:
        _write(pipeline, kept)


def _write(pipeline: Pipeline, rules: Sequence[StoredRule], spark: SparkSession | None = None) -> None:
    where = _place(pipeline, spark)
    if where is not None:
        text = json.dumps({"rules": [asdict(one) for one in rules]}, indent=1, ensure_ascii=False)
        where.replace(FILE, text + "\n")


def _stored(pipeline: Pipeline, one: RuleProgress) -> StoredRule:
    over = one.exceeded
    return StoredRule(
        one.rule,
        one.flow,
        one.total.rows,
        one.total.violations,
        one.last.rows,
        one.last.violations,
        None if one.limit is None else str(one.limit),
        None if over is None else over.rows,
        0 if over is None else over.violations,
        "" if over is None else _meaning(pipeline, one.rule),
    )


def stored_rules(pipeline: Pipeline, spark: SparkSession | None = None) -> list[StoredRule]:
    """The counts of the last run; empty if there are none."""
    where = _place(pipeline, spark)
    text = None if where is None else where.read(FILE)
    try:
        return [] if text is None else [StoredRule(**one) for one in json.loads(text)["rules"]]
    except (ValueError, TypeError, KeyError):
        raise CountsError(
            f"{pipeline.path(pipeline.checkpoint)}/{FILE} is damaged. It says whether the last run exceeded a limit: "
            "look at the data, then delete it"
        ) from None


def exceeded(pipeline: Pipeline, spark: SparkSession | None = None) -> list[RuleProgress]:
    """The limits of the last run that are still exceeded, with the rules and limits of today."""
    limits = limits_of(pipeline)
    found = []
    for one in stored_rules(pipeline, spark):
        limit, over = limits.get(one.rule), one.progress.exceeded
        if over is None or limit is None or one.meaning != _meaning(pipeline, one.rule):
            continue
        if limit.is_exceeded(over):
            found.append(replace(one.progress, limit=limit))
    return found


def _meaning(pipeline: Pipeline, rule: str) -> str:
    """All that decides how many rows break a rule, apart from the data."""
    names = [rule.removeprefix(f"{DEAD_LETTERS}.")] if rule.startswith(f"{DEAD_LETTERS}.") else None
    sources = [_reading(pipeline, one) for one in pipeline.sources if names is None or one.name in names]
    rules = [(one.input, one.that, one.otherwise) for one in pipeline.expects if names is not None or one.name == rule]
    steps = [repr(one) for one in pipeline.steps] if names is None else []
    return json.dumps([sources, rules, steps])


def _reading(pipeline: Pipeline, source: Source) -> list[object]:
    file = None if source.schema_file is None else Path(pipeline.path(source.schema_file)).read_text("utf-8")
    return [
        source.name,
        source.format,
        source.schema,
        file,
        source.confluent_header,
        *([source.registry, source.subject, source.message] if source.registry else []),
        sorted(source.options.items()),
        list(source.require),
        source.null_values,
    ]


def _place(pipeline: Pipeline, spark: SparkSession | None) -> Place | None:
    return place(pipeline.path(pipeline.checkpoint), spark)
