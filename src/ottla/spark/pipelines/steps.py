"""Turn declared steps into DataFrames. A new step is a dataclass in `declaration.py` and a function here."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ottla.spark.pipelines.checks.modes import chain, input_of
from ottla.spark.pipelines.declaration import Dedupe, Join, Pipeline, Python, Source, Sql, Step, Window
from ottla.spark.pipelines.schemas import quoted
from ottla.spark.pipelines.times import interval, millis
from ottla.suggestions import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Spark's metadata key of a column with a watermark.
_WATERMARK_MS = "spark.watermarkDelayMs"


class StepError(ValueError):
    """An invalid step; `key` is the wrong key."""

    def __init__(self, message: str, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key


def apply(pipeline: Pipeline, step: Step, views: Mapping[str, DataFrame], spark: SparkSession) -> DataFrame:
    """The result of a step; `views` has the sources, tables and earlier steps."""
    if isinstance(step, Sql):
        return spark.sql(step.sql or Path(pipeline.path(step.sql_file or "")).read_text())
    frame = views[input_of(pipeline, step) or ""]
    if isinstance(step, Python):
        return _python(pipeline, step, frame)
    if isinstance(step, Dedupe):
        check_columns(step.keys, frame, "dedupe")
        timed = _timed(pipeline, step, frame, step.within)
        return timed.dropDuplicatesWithinWatermark(list(step.keys))
    if isinstance(step, Window):
        return _windowed(pipeline, step, frame)
    assert isinstance(step, Join)
    check_columns(step.on, frame, "on")
    check_columns(step.on, views[step.table], "on", f"table {step.table}")
    return frame.join(views[step.table], list(step.on), step.how)


def _windowed(pipeline: Pipeline, step: Window, frame: DataFrame) -> DataFrame:
    from pyspark.sql import functions as fn

    check_columns(step.group_by, frame, "group_by")
    timed = _timed(pipeline, step, frame, step.watermark) if step.watermark else frame
    column = _time_column(pipeline, step, frame)
    window = fn.window(fn.col(quoted(column)), interval(step.window), interval(step.slide) if step.slide else None)
    names = [quoted(name) for name in step.group_by]
    aggregates = [fn.expr(sql).alias(name) for name, sql in step.aggregate.items()]
    found = timed.groupBy(window, *names).agg(*aggregates)
    bounds = ["window.start AS window_start", "window.end AS window_end"]
    return found.selectExpr(*bounds, *names, *[quoted(name) for name in step.aggregate])


def _timed(pipeline: Pipeline, step: Dedupe | Window, frame: DataFrame, late: str) -> DataFrame:
    """Add a watermark on the step's event time. Spark allows one per stream."""
    column = _time_column(pipeline, step, frame)
    known = {one.name: delay for one in frame.schema.fields if (delay := one.metadata.get(_WATERMARK_MS)) is not None}
    if not known:
        return frame.withWatermark(column, interval(late))
    if known != {column: millis(late)}:
        present = ", ".join(f"{name} with {delay / 1000:g} seconds" for name, delay in known.items())
        key = "within" if isinstance(step, Dedupe) else "watermark"
        raise StepError(f"{key} {late}: the stream already has a watermark ({present}); Spark allows only one", key)
    return frame


def _time_column(pipeline: Pipeline, step: Dedupe | Window, frame: DataFrame) -> str:
    """The event time of the step, or of the source if the column still exists, or the record timestamp."""
    before = [one for one in chain(pipeline, step) if isinstance(one, Source)] or pipeline.sources
    known = {source.event_time for source in before if source.event_time in frame.columns}
    column = step.event_time or (known.pop() if len(known) == 1 else None) or "_timestamp"
    check_columns([column], frame, "event_time")
    return column


def check_columns(wanted: Iterable[str], frame: DataFrame, key: str, where: str = "the input") -> None:
    """Raise StepError with a suggestion if a column is missing."""
    known = {name.lower() for name in frame.columns}
    for name in wanted:
        if name.lower() not in known:
            near = did_you_mean(name, frame.columns) or f" The columns are {', '.join(frame.columns)}."
            raise StepError(f"{key}: {where} has no column {name}.{near}", key)


def _python(pipeline: Pipeline, step: Python, frame: DataFrame) -> DataFrame:
    from pyspark.sql import DataFrame as Frames

    module, _, name = step.python.partition(":")
    try:
        function = getattr(_module(pipeline, module), name)
        found = function(frame, **step.arguments)
    except Exception as error:
        raise StepError(f"{step.python}: {type(error).__name__}: {error}", "python") from error
    if not isinstance(found, Frames):
        raise StepError(f"{step.python} returned a {type(found).__name__}: it must return a DataFrame", "python")
    return found


def _module(pipeline: Pipeline, name: str) -> ModuleType:
    """Import the module. One next to the declaration is pickled by value, so that workers get it."""
    directory = str(pipeline.directory.resolve())
    file = pipeline.directory.resolve() / (name.replace(".", "/") + ".py")
    if not file.is_file():
        return importlib.import_module(name)
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) != str(file):
        del sys.modules[name]  # of another pipeline
    sys.path.insert(0, directory)
    try:
        found = importlib.import_module(name)
    finally:
        sys.path.remove(directory)
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(found)
    return found
