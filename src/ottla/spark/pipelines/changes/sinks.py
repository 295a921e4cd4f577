"""What a step with latest means for the sinks after it: their keys and their sequence."""

from __future__ import annotations

from dataclasses import fields

from ottla.spark.pipelines.checks.modes import input_of
from ottla.spark.pipelines.declaration import VALID_FROM, VERSION, Latest, Pipeline, Sink, changed


def latest_before(pipeline: Pipeline, sink: Sink) -> Latest | None:
    """The step with latest that is the input of a sink."""
    name = input_of(pipeline, sink)
    return next((one for one in pipeline.steps if isinstance(one, Latest) and one.name == name), None)


def can_merge(sink: Sink) -> bool:
    """Whether a kind of sink can replace rows by keys."""
    return {"keys", "sequence"} <= {one.name for one in fields(sink)}


def with_keys(pipeline: Pipeline) -> Pipeline:
    """The pipeline whose sinks after a step with latest have its keys, and `_version` as their sequence."""
    sinks = [_with_keys(one, latest_before(pipeline, one)) for one in pipeline.sinks]
    return pipeline if sinks == list(pipeline.sinks) else changed(pipeline, sinks=sinks)


def _with_keys(sink: Sink, step: Latest | None) -> Sink:
    if step is None or not can_merge(sink):
        return sink
    return changed(sink, keys=[*step.keys, *([VALID_FROM] if step.history else [])], sequence=VERSION)
