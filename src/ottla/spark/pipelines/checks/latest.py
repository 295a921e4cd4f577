"""Check steps with latest, and the sinks after them."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.spark.pipelines.changes.sinks import can_merge, latest_before
from ottla.spark.pipelines.declaration import ConsoleSink, Latest, Pipeline, Problem, Sink
from ottla.spark.pipelines.shared.layout import inputs_of


def latest_problems(pipeline: Pipeline, step: Latest) -> Iterator[Problem]:
    """Empty lists, columns that are needed, and later steps: only a sink can merge changes."""
    if not step.keys:
        yield step.where.problem('latest is empty: name the key columns, such as latest = ["id"]', "latest")
    if not step.order:
        yield step.where.problem('sequence is empty: name a column, such as sequence = "ts"', "sequence")
    needed = [name for name in step.keys if name in step.exclude]
    if needed:
        yield step.where.problem(f"exclude contains {needed[0]}, which is part of latest: remove it", "exclude")
    for later in pipeline.steps[list(pipeline.steps).index(step) + 1 :]:
        if step.name in inputs_of(pipeline, later):
            yield later.where.problem(
                f"step {step.name} with latest must be the last one before a sink, because the sink applies its "
                f"changes: use the input of {step.name} here, and move {step.name} after this step",
                "input",
            )


def latest_sink_problems(pipeline: Pipeline, sink: Sink) -> Iterator[Problem]:
    """Sinks that cannot replace rows, and keys that the step sets."""
    step = latest_before(pipeline, sink)
    if step is None or isinstance(sink, ConsoleSink):
        return
    if not can_merge(sink):
        kind = str(getattr(sink, "format", type(sink).__name__.removesuffix("Sink").lower()))
        yield sink.where.problem(
            f"a {kind} sink only adds rows, and the changes of {step.name} replace rows: use a table that can, such as "
            'format = "delta" or "postgres"',
            "format",
        )
        return
    for key in ("keys", "sequence", "delete_when", "mode"):
        if getattr(sink, key, None):
            yield sink.where.problem(f"step {step.name} with latest sets it: remove {key} from the sink", key)
