"""Check joins: with tables, and with streams within a time bound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ottla.spark.pipelines.checks.modes import chain_from, delay_of, input_of
from ottla.spark.pipelines.declaration import Join, Pipeline, Problem, Python, Session, Source, Sql, Step, Window
from ottla.spark.pipelines.times import bounds
from ottla.suggestions import did_you_mean

_OF_TABLES = ("inner", "left", "semi", "anti")
_OF_STREAMS = ("inner", "left", "right", "full", "semi")
_EXAMPLE = 'within = "1 hour"'


def join_problems(
    pipeline: Pipeline, step: Join, tables: Sequence[str], streams: Sequence[str], later: Sequence[str]
) -> Iterator[Problem]:
    """`streams` has the sources and earlier steps, `later` the steps after this one."""
    if not step.on:
        yield step.where.problem('on is empty: name the join columns, such as on = ["customer"]', "on")
    if step.join in tables:
        yield from _of_table(step)
    elif step.join in streams:
        yield from _of_stream(pipeline, step)
    elif step.join in later:
        yield step.where.problem(f"{step.join} is declared later: move it before this step", "join")
    else:
        near = did_you_mean(step.join, (*tables, *streams))
        text = f"{step.join} does not exist: name a table, a source or an earlier step.{near}"
        yield step.where.problem(text, "join")


def _of_table(step: Join) -> Iterator[Problem]:
    if step.within is not None:
        yield step.where.problem(f"within is for joins of streams, but {step.join} is a table: remove it", "within")
    yield from _how(step, _OF_TABLES, "table")


def _of_stream(pipeline: Pipeline, step: Join) -> Iterator[Problem]:
    if step.within is None:
        text = f"{step.join} is a stream: set the maximum time between matching events, such as {_EXAMPLE}"
        yield step.where.problem(text, "join")
    else:
        yield from _within(step)
    yield from _how(step, _OF_STREAMS, "stream")
    for name in dict.fromkeys((input_of(pipeline, step), step.join)):
        yield from _side(pipeline, step, name)


def _how(step: Join, allowed: Sequence[str], what: str) -> Iterator[Problem]:
    if step.how is not None and step.how not in allowed:
        choices = ", ".join(allowed)
        yield step.where.problem(f"how = {step.how} is not possible with a {what}: use one of {choices}", "how")


def _within(step: Join) -> Iterator[Problem]:
    if isinstance(step.within, Mapping):
        odd = [key for key in step.within if key not in ("before", "after")]
        if odd or not step.within:
            near = did_you_mean(odd[0], ("before", "after")) if odd else ""
            text = f"within has the keys before and after{f', not {odd[0]}.{near}' if odd else ''}"
            yield step.where.problem(text.removesuffix("."), f"within.{odd[0]}" if odd else "within")
            return
    try:
        bounds(step.within or {})
    except ValueError as error:
        yield step.where.problem(f"within {error}", "within")


def _side(pipeline: Pipeline, step: Join, name: str | None) -> Iterator[Problem]:
    """Both streams need a watermark. Behind SQL or Python, Spark knows."""
    found: list[Source | Step] = chain_from(pipeline, name)
    window = next((one for one in found if isinstance(one, Window | Session)), None)
    if window is not None:
        text = f"{name} has no event time after {window.name}: join the streams first, then aggregate"
        yield step.where.problem(text, "join")
    elif found and not any(isinstance(one, Sql | Python) for one in found) and not any(map(delay_of, found)):
        text = f"{name} has no watermark, so its rows would be kept forever: set event_time and watermark"
        yield step.where.problem(f"{text} of source {found[-1].name}", "join")
