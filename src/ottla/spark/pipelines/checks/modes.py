"""Check output modes and watermarks."""

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
    """The inputs of a part, nearest first; ends at a source or at SQL."""
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
    """The name of the input: as declared, or the previous part."""
    if part.input is not None or isinstance(part, Sql):
        return part.input
    steps = list(pipeline.steps)
    place = next((number for number, one in enumerate(steps) if one is part), len(steps))
    if place > 0:
        return steps[place - 1].name
    return pipeline.sources[0].name if len(pipeline.sources) == 1 else None


def source_of(pipeline: Pipeline, part: Step | Sink) -> Source | None:
    """The source of a part; None if SQL or Python is in between."""
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
            yield step.where.problem(
                f"{key} {own} differs from {other} of {one.name}: Spark allows one watermark per stream. Use the same "
                "duration, or remove one of them",
                key,
            )
        elif step.event_time and isinstance(one, Source) and step.event_time != one.event_time:
            yield step.where.problem(
                f"event_time {step.event_time} differs from {one.event_time} of source {one.name}, which has a "
                "watermark: Spark allows one per stream",
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
        yield sink.where.problem(f"a {what} sink supports mode {' or '.join(allowed)}, not {mode}", "mode")
        return
    if isinstance(sink, JdbcSink) and mode == "update" and not sink.keys:
        yield sink.where.problem('mode update requires keys, such as keys = ["id"]', "mode")
    before = chain(pipeline, sink)
    window = next((one for one in before if isinstance(one, Window)), None)
    known = bool(before) and not any(isinstance(one, Sql | Python) for one in before)
    if isinstance(sink, JdbcSink) and sink.keys and not sink.sequence and known and window is not None:
        yield from _windows_per_key(sink, window)
    if mode == "complete" and known and window is None:
        yield sink.where.problem("mode complete requires an aggregation before this sink", "mode")
    if mode == "append" and window is not None and known and not any(map(_delay, before)):
        others = " or set mode = update here" if "update" in allowed else ""
        yield window.where.problem(
            f"windows without a watermark never end, so sink {sink.name} would never write them: set watermark, "
            f"such as 10 minutes,{others}".removesuffix(","),
            "window",
        )


def _windows_per_key(sink: JdbcSink, window: Window) -> Iterator[Problem]:
    """Keys that match several rows of a window step need an order."""
    left = [name for name in window.group_by if name not in sink.keys]
    if left:
        yield sink.where.problem(
            f"rows of {window.name} with the same keys can differ in {', '.join(left)}: add it to keys", "keys"
        )
    elif not {"window_start", "window_end"} & set(sink.keys):
        yield sink.where.problem(
            f"keys match several windows of {window.name}: add window_start to keys, or set sequence = "
            '"window_start" to keep the last window',
            "keys",
        )
