"""Declared pipelines: loaded from a file or built in Python, checked, and run with Structured Streaming.

>>> from ottla.spark.pipelines import compile_pipeline, load
>>> pipeline = load("orders.toml")                                                         # doctest: +SKIP
>>> queries = [flow.start() for flow in compile_pipeline(pipeline, spark)]                 # doctest: +SKIP

`declaration/` has the dataclasses, `loading.py` and `toml/` read files, `checks/` finds problems, `compile.py` builds
queries. See docs/pipelines.md.
"""

from ottla.spark.pipelines.compile import Flow, compile_pipeline
from ottla.spark.pipelines.declaration import (
    ConsoleSink,
    DatabaseSink,
    DeadLetters,
    DeclarationError,
    Dedupe,
    Events,
    Expect,
    FileSink,
    JdbcSink,
    Join,
    LakeSink,
    Latest,
    Lineage,
    Pipeline,
    Problem,
    Python,
    Session,
    Source,
    Sql,
    Table,
    TopicSink,
    Window,
)
from ottla.spark.pipelines.loading import load

__all__ = [
    "ConsoleSink",
    "DatabaseSink",
    "DeadLetters",
    "DeclarationError",
    "Dedupe",
    "Events",
    "Expect",
    "FileSink",
    "Flow",
    "JdbcSink",
    "Join",
    "LakeSink",
    "Latest",
    "Lineage",
    "Pipeline",
    "Problem",
    "Python",
    "Session",
    "Source",
    "Sql",
    "Table",
    "TopicSink",
    "Window",
    "compile_pipeline",
    "load",
]
