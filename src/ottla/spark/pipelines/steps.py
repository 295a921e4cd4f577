"""Turn declared steps into DataFrames. A new step is a dataclass in `declaration/steps.py` and a function here."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ottla.spark.pipelines.changes.rows import changes
from ottla.spark.pipelines.checks.modes import chain, input_of, joins_stream
from ottla.spark.pipelines.columns import StepError, check_columns, watermarks
from ottla.spark.pipelines.declaration import Dedupe, Join, Latest, Pipeline, Python, Session, Source, Sql, Step, Window
from ottla.spark.pipelines.failures import is_foreign
from ottla.spark.pipelines.joins import join_streams, join_table
from ottla.spark.pipelines.schemas import quoted
from ottla.spark.pipelines.sql_errors import read_error
from ottla.spark.pipelines.times import interval, millis

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
    if isinstance(step, Window | Session):
        return _windowed(pipeline, step, frame)
    if isinstance(step, Latest):
        return changes(step, frame)
    assert isinstance(step, Join)
    join = join_streams if joins_stream(pipeline, step) else join_table
    return join(step, frame, views[step.join])


def _windowed(pipeline: Pipeline, step: Window | Session, frame: DataFrame) -> DataFrame:
    from pyspark.sql import functions as fn

    check_columns(step.group_by, frame, "group_by")
    timed = _timed(pipeline, step, frame, step.watermark) if step.watermark else frame
    column = time_column(pipeline, step, frame)
    time = fn.col(quoted(column))
    if isinstance(step, Session):
        window = fn.session_window(time, interval(step.session)).alias("window")
    else:
        window = fn.window(time, interval(step.window), interval(step.slide) if step.slide else None)
    names = [quoted(name) for name in step.group_by]
    aggregates = [fn.expr(sql).alias(name) for name, sql in step.aggregate.items()]
    found = timed.groupBy(window, *names).agg(*aggregates)
    bounds = ["window.start AS window_start", "window.end AS window_end"]
    return found.selectExpr(*bounds, *names, *[quoted(name) for name in step.aggregate])


def _timed(pipeline: Pipeline, step: Dedupe | Window | Session, frame: DataFrame, late: str) -> DataFrame:
    """Add a watermark on the step's event time. Spark allows one per stream."""
    column = time_column(pipeline, step, frame)
    known = watermarks(frame)
    if not known:
        return frame.withWatermark(column, interval(late))
    if known != {column: millis(late)}:
        present = ", ".join(f"{name} with {delay / 1000:g} seconds" for name, delay in known.items())
        key = "within" if isinstance(step, Dedupe) else "watermark"
        raise StepError(f"{key} {late}: the stream already has a watermark ({present}); Spark allows only one", key)
    return frame


def time_column(pipeline: Pipeline, step: Dedupe | Window | Session, frame: DataFrame) -> str:
    """The event time of the step; raises StepError if there is no such column."""
    column = event_time_of(pipeline, step, frame.columns)
    check_columns([column], frame, "event_time")
    return column


def event_time_of(pipeline: Pipeline, step: Dedupe | Window | Session, columns: Sequence[str]) -> str:
    """The event time of the step, or of the source if the input still has this column, or the record timestamp."""
    before = [one for one in chain(pipeline, step) if isinstance(one, Source)] or pipeline.sources
    known = {source.event_time for source in before if source.event_time in columns}
    return step.event_time or (known.pop() if len(known) == 1 else None) or "_timestamp"


def _python(pipeline: Pipeline, step: Python, frame: DataFrame) -> DataFrame:
    from pyspark.sql import DataFrame as Frames

    module, _, name = step.python.partition(":")
    try:
        function = getattr(_module(pipeline, module), name)
        found = function(frame, **step.arguments)
    except Exception as error:
        raise StepError(f"{step.python}: {_raised(error, frame)}", "python") from error
    if not isinstance(found, Frames):
        raise StepError(f"{step.python} returned a {type(found).__name__}: it must return a DataFrame", "python")
    return found


def _raised(error: Exception, frame: DataFrame) -> str:
    """What a function of the user raised, and in which line."""
    from pyspark.errors import PySparkException

    places = [one for one in traceback.extract_tb(error.__traceback__) if not is_foreign(one.filename)]
    where = f" (line {places[-1].lineno} of {Path(places[-1].filename).name}, in {places[-1].name})" if places else ""
    if isinstance(error, PySparkException):
        return f"{read_error(str(error), {'the input': frame.columns}).message}{where}"
    return f"{type(error).__name__}: {error}{where}"


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
