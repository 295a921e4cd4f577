"""Check output modes and watermarks."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.spark.pipelines.declaration import (
    ConsoleSink,
    DatabaseSink,
    Dedupe,
    Expect,
    FileSink,
    JdbcSink,
    Join,
    LakeSink,
    Pipeline,
    Problem,
    Python,
    Session,
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
    LakeSink: ("append", "upsert", "overwrite"),
    DatabaseSink: ("append", "upsert", "overwrite"),
}


def chain(pipeline: Pipeline, part: Step | Sink | Expect) -> list[Source | Step]:
    """The inputs of a part, nearest first; ends at a source or at SQL. A joined stream is not an input."""
    return chain_from(pipeline, input_of(pipeline, part))


def chain_from(pipeline: Pipeline, name: str | None) -> list[Source | Step]:
    """The source or step with this name, and its inputs."""
    named: dict[str, Source | Step] = {
        **{source.name: source for source in pipeline.sources},
        **{step.name: step for step in pipeline.steps},
    }
    found: list[Source | Step] = []
    while name in named and named[name] not in found:
        one = named[name]
        found.append(one)
        if isinstance(one, Source | Sql):
            break
        name = input_of(pipeline, one)
    return found


def joins_stream(pipeline: Pipeline, step: Step) -> bool:
    """Whether a step joins a source or another step, not a table."""
    return isinstance(step, Join) and step.join not in [table.name for table in pipeline.tables]


def input_of(pipeline: Pipeline, part: Step | Sink | Expect) -> str | None:
    """The name of the input: as declared, or the previous part."""
    if part.input is not None or isinstance(part, Sql):
        return part.input
    steps = list(pipeline.steps)
    place = next((number for number, one in enumerate(steps) if one is part), len(steps))
    if place > 0:
        return steps[place - 1].name
    return pipeline.sources[0].name if len(pipeline.sources) == 1 else None


def source_of(pipeline: Pipeline, part: Step | Sink) -> Source | None:
    """The source of a part; None if SQL, Python or a join of streams is in between."""
    found = chain(pipeline, part)
    known = found and not any(isinstance(one, Sql | Python) or _joins(pipeline, one) for one in found)
    return found[-1] if known and isinstance(found[-1], Source) else None


def _joins(pipeline: Pipeline, one: Source | Step) -> bool:
    return isinstance(one, Join) and joins_stream(pipeline, one)


def mode_problems(pipeline: Pipeline) -> Iterator[Problem]:
    for step in pipeline.steps:
        if isinstance(step, Dedupe | Window | Session):
            yield from _times(pipeline, step)
    for sink in pipeline.sinks:
        if type(sink) in _MODES:
            yield from _mode(pipeline, sink)


def _times(pipeline: Pipeline, step: Dedupe | Window | Session) -> Iterator[Problem]:
    own = delay_of(step)
    for one in chain(pipeline, step):
        if own is None or isinstance(one, Sql | Python | Join) or not (other := delay_of(one)):
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


def delay_of(one: Source | Step) -> str | None:
    """The watermark that a source or step sets."""
    if isinstance(one, Dedupe):
        return one.within
    return one.watermark if isinstance(one, Source | Window | Session) else None


def _mode(pipeline: Pipeline, sink: Sink) -> Iterator[Problem]:
    mode, allowed = sink.mode or "append", _MODES[type(sink)]
    if mode not in allowed:
        kind = type(sink).__name__.removesuffix("Sink").lower()
        what = sink.format if isinstance(sink, FileSink | LakeSink | DatabaseSink) else kind
        yield sink.where.problem(f"a {what} sink supports mode {' or '.join(allowed)}, not {mode}", "mode")
        return
    if isinstance(sink, JdbcSink) and mode == "update" and not sink.keys:
        yield sink.where.problem('mode update requires keys, such as keys = ["id"]', "mode")
    before = chain(pipeline, sink)
    window = next((one for one in before if isinstance(one, Window | Session)), None)
    known = bool(before) and not any(isinstance(one, Sql | Python) for one in before)
    if isinstance(sink, JdbcSink | LakeSink | DatabaseSink) and sink.keys:
        if not sink.sequence and known and window is not None:
            yield from _windows_per_key(sink, window)
        if not isinstance(sink, JdbcSink) and isinstance(window, Window):
            return  # changed windows are written as long as they change
    if mode in ("complete", "overwrite") and known and window is None:
        yield sink.where.problem(f"mode {mode} requires an aggregation before this sink", "mode")
    if mode == "update" and isinstance(window, Session):
        text = f"sessions can merge, so {window.name} has no mode update: remove mode, or use a window"
        yield sink.where.problem(text, "mode")
    yield from _join_modes(pipeline, sink, mode, before)
    if mode == "append" and window is not None and known and not any(map(delay_of, before)):
        what = "session" if isinstance(window, Session) else "window"
        others = " or set mode = update here" if "update" in allowed and what == "window" else ""
        yield window.where.problem(
            f"{what}s without a watermark never end, so sink {sink.name} would never write them: set watermark, "
            f"such as 10 minutes,{others}".removesuffix(","),
            what,
        )


def _windows_per_key(sink: JdbcSink | LakeSink | DatabaseSink, window: Window | Session) -> Iterator[Problem]:
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


def _join_modes(pipeline: Pipeline, sink: Sink, mode: str, before: list[Source | Step]) -> Iterator[Problem]:
    for one in before:
        if isinstance(one, Join) and joins_stream(pipeline, one):
            outer = one.how in ("left", "right", "full")
            if mode in ("complete", "overwrite") or (mode == "update" and outer):
                kind = f"a {one.how or 'inner'} join of streams"
                yield sink.where.problem(f"{kind} ({one.name}) does not support mode {mode}: remove mode", "mode")
