"""Output modes against what is known of a stream: whether it aggregates, and has a watermark."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.spark.pipelines.declaration import (
    ConsoleSink,
    Dedupe,
    FileSink,
    JdbcSink,
    Join,
    Pipeline,
    Problem,
    Python,
    Sink,
    Source,
    Sql,
    Step,
    TopicSink,
    Window,
)
from ottla.spark.pipelines.times import millis

_MODES: dict[type[Sink], tuple[str, ...]] = {
    FileSink: ("append",),
    TopicSink: ("append", "update"),
    ConsoleSink: ("append", "update", "complete"),
    JdbcSink: ("append", "update"),
}


def chain(pipeline: Pipeline, part: Step | Sink) -> list[Source | Step]:
    """What a part builds on, nearest first, as far as it is known: it ends with a source, or with SQL."""
    named: dict[str, Source | Step] = {
        **{source.name: source for source in pipeline.sources},
        **{step.name: step for step in pipeline.steps},
    }
    found: list[Source | Step] = []
    name = input_of(pipeline, part)
    while name in named and named[name] not in found:
        one = named[name]
        found.append(one)
        if isinstance(one, Source | Sql):
            break
        name = input_of(pipeline, one)
    return found


def input_of(pipeline: Pipeline, part: Step | Sink) -> str | None:
    """The name of what a part takes: as given, or what is declared before it."""
    if part.input is not None or isinstance(part, Sql):
        return part.input
    steps = list(pipeline.steps)
    place = next((number for number, one in enumerate(steps) if one is part), len(steps))
    if place > 0:
        return steps[place - 1].name
    return pipeline.sources[0].name if len(pipeline.sources) == 1 else None


def source_of(pipeline: Pipeline, part: Step | Sink) -> Source | None:
    """The source that a part builds on; None if SQL or Python is between them."""
    found = chain(pipeline, part)
    known = found and not any(isinstance(one, Sql | Python) for one in found)
    return found[-1] if known and isinstance(found[-1], Source) else None


def mode_problems(pipeline: Pipeline) -> Iterator[Problem]:
    for step in pipeline.steps:
        if isinstance(step, Dedupe | Window):
            yield from _times(pipeline, step)
    for sink in pipeline.sinks:
        if type(sink) in _MODES:
            yield from _mode(pipeline, sink)


def _times(pipeline: Pipeline, step: Dedupe | Window) -> Iterator[Problem]:
    own = _delay(step)
    for one in chain(pipeline, step):
        if own is None or isinstance(one, Sql | Python | Join) or not (other := _delay(one)):
            continue
        if millis(own) != millis(other):
            key = "within" if isinstance(step, Dedupe) else "watermark"
            yield step.problem(
                f"{key} {own} differs from {other} of {one.name}: Spark allows one watermark in a stream, so give the "
                "same time, or leave one of them out",
                key,
            )
        elif step.event_time and isinstance(one, Source) and step.event_time != one.event_time:
            yield step.problem(
                f"event_time {step.event_time} differs from {one.event_time} of source {one.name}, which has a "
                "watermark: Spark allows one in a stream",
                "event_time",
            )


def _delay(one: Source | Step) -> str | None:
    if isinstance(one, Dedupe):
        return one.within
    return one.watermark if isinstance(one, Source | Window) else None


def _mode(pipeline: Pipeline, sink: Sink) -> Iterator[Problem]:
    mode, allowed = sink.mode or "append", _MODES[type(sink)]
    if isinstance(sink, FileSink) and sink.format in ("delta", "iceberg"):
        allowed = ("append", "complete")
    if mode not in allowed:
        what = sink.format if isinstance(sink, FileSink) else type(sink).__name__.removesuffix("Sink").lower()
        yield sink.problem(f"a {what} sink has the mode {' or '.join(allowed)}, not {mode}", "mode")
        return
    if isinstance(sink, JdbcSink) and mode == "update" and not sink.keys:
        yield sink.problem('mode update needs keys, by which rows are replaced, such as keys = ["id"]', "mode")
    before = chain(pipeline, sink)
    window = next((one for one in before if isinstance(one, Window)), None)
    known = bool(before) and not any(isinstance(one, Sql | Python) for one in before)
    if mode == "complete" and known and window is None:
        yield sink.problem("mode complete needs an aggregation, and there is none before this sink", "mode")
    if mode == "append" and window is not None and known and not any(map(_delay, before)):
        others = " or set mode = update here" if "update" in allowed else ""
        yield window.problem(
            f"windows without a watermark never end, and sink {sink.name} writes them when they have ended: set "
            f"watermark, such as 10 minutes,{others}".removesuffix(","),
            "window",
        )
