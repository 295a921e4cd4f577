"""Check `[[expect]]` and `at_most`."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.spark.pipelines.checks.modes import input_of
from ottla.spark.pipelines.declaration import DEAD_LETTERS, DeadLetters, Expect, Pipeline, Problem
from ottla.spark.pipelines.limits import parse_limit
from ottla.spark.pipelines.shared.layout import names_before


def rule_problems(pipeline: Pipeline, rule: Expect) -> Iterator[Problem]:
    """Problems of a rule whose input exists."""
    if rule.name.startswith(f"{DEAD_LETTERS}."):
        yield rule.where.problem(f"names that start with {DEAD_LETTERS}. are reserved: rename the rule", "name")
    if not _is_used(pipeline, input_of(pipeline, rule) or ""):
        yield rule.where.problem(
            f"no sink uses {input_of(pipeline, rule)}, so the rule would never be checked: set input to a source or "
            "step of a sink",
            "input",
        )
    yield from limit_problems(rule)
    if rule.otherwise == "fail" and rule.at_most is not None:
        yield rule.where.problem(
            "otherwise = fail stops at the first row, so at_most has no meaning: remove at_most, or use warn or drop",
            "at_most",
        )
    if rule.otherwise == "dead-letter":
        yield from _dead_letter(pipeline, rule)


def _is_used(pipeline: Pipeline, name: str) -> bool:
    try:
        return any(name in names_before(pipeline, sink) for sink in pipeline.sinks)
    except OSError:  # a file with SQL is missing, which is reported elsewhere
        return True


def limit_problems(part: Expect | DeadLetters) -> Iterator[Problem]:
    if part.at_most is not None:
        try:
            parse_limit(part.at_most)
        except ValueError as error:
            yield part.where.problem(f"at_most {error}", "at_most")


def _dead_letter(pipeline: Pipeline, rule: Expect) -> Iterator[Problem]:
    """A dead letter is the record as it was read, which only the rows of a source still have."""
    given = input_of(pipeline, rule)
    source = next((one for one in pipeline.sources if one.name == given), None)
    if source is None:
        names = " or ".join(f'"{one.name}"' for one in pipeline.sources)
        yield rule.where.problem(
            f"otherwise = dead-letter requires a source as input, because the rows of step {given} no longer have "
            f"their records: set input = {names}, or use drop or fail",
            "otherwise",
        )
    elif pipeline.dead_letters is None:
        yield rule.where.problem("otherwise = dead-letter requires [dead_letters] with a topic", "otherwise")
    elif not pipeline.sends_dead_letters(source):
        yield rule.where.problem(
            f"otherwise = dead-letter, but source {source.name} has on_error = {source.on_error}: remove on_error, or "
            "use drop or fail",
            "otherwise",
        )
