"""Declared pipelines: read from a file or made in Python, checked as a whole, and run as Structured Streaming.

>>> from ottla.spark.pipelines import compile_pipeline, load
>>> pipeline = load("orders.toml")                                                         # doctest: +SKIP
>>> queries = [flow.start() for flow in compile_pipeline(pipeline, spark)]                 # doctest: +SKIP

`declaration.py` is the form, `loading.py` and `toml_form.py` read it, `check.py` finds what is wrong with it,
`compile.py` makes queries of it. See docs/pipelines.md.
"""

from ottla.spark.pipelines.compile import Flow, compile_pipeline
from ottla.spark.pipelines.declaration import (
    ConsoleSink,
    DeadLetters,
    DeclarationError,
    Dedupe,
    FileSink,
    JdbcSink,
    Join,
    Pipeline,
    Problem,
    Python,
    Source,
    Sql,
    Table,
    TopicSink,
    Window,
)
from ottla.spark.pipelines.loading import load

__all__ = [
    "ConsoleSink",
    "DeadLetters",
    "DeclarationError",
    "Dedupe",
    "FileSink",
    "Flow",
    "JdbcSink",
    "Join",
    "Pipeline",
    "Problem",
    "Python",
    "Source",
    "Sql",
    "Table",
    "TopicSink",
    "Window",
    "compile_pipeline",
    "load",
]
