"""The declaration of a pipeline: frozen dataclasses with the same names as in a TOML file. Does not need Spark.

    Pipeline(
        name="orders",
        checkpoint="state/orders",
        bootstrap_servers="localhost:9092",
        sources=[Source(name="orders", topics=["orders"], schema="id BIGINT NOT NULL, total DOUBLE")],
        steps=[Dedupe(name="unique", keys=["id"], within="1 hour"), Sql(name="large", sql="SELECT * FROM unique")],
        sinks=[FileSink(name="table", format="parquet", path="tables/orders")],
        dead_letters=DeadLetters(topic="orders.dead"),
    )

To add a key, add a field: the checks and the reference in docs/pipelines.md use its type, default and `doc`.
Constructors check nothing, so that `check` can report all problems at once.
"""

from ottla.spark.pipelines.declaration.base import (
    DEAD_LETTERS,
    DELETED,
    ORIGIN,
    RESERVED,
    SHARED,
    VALID_FROM,
    VALID_TO,
    VERSION,
    DeclarationError,
    Deliver,
    Problem,
    ValueFormat,
    Where,
    doc,
)
from ottla.spark.pipelines.declaration.pipeline import Declared, Events, Expect, Lineage, Otherwise, Pipeline, changed
from ottla.spark.pipelines.declaration.sinks import (
    SINKS,
    ConsoleSink,
    DatabaseFormat,
    DatabaseSink,
    DeadLetters,
    FileFormat,
    FileSink,
    JdbcSink,
    LakeFormat,
    LakeSink,
    OutputMode,
    Sink,
    TopicSink,
)
from ottla.spark.pipelines.declaration.sources import Source, SourceFormat, Table
from ottla.spark.pipelines.declaration.steps import STEPS, Dedupe, Join, Latest, Python, Session, Sql, Step, Window

__all__ = [
    "DEAD_LETTERS",
    "DELETED",
    "ORIGIN",
    "RESERVED",
    "SHARED",
    "SINKS",
    "STEPS",
    "VALID_FROM",
    "VALID_TO",
    "VERSION",
    "ConsoleSink",
    "DatabaseFormat",
    "DatabaseSink",
    "DeadLetters",
    "DeclarationError",
    "Declared",
    "Dedupe",
    "Deliver",
    "Events",
    "Expect",
    "FileFormat",
    "FileSink",
    "JdbcSink",
    "Join",
    "LakeFormat",
    "LakeSink",
    "Latest",
    "Lineage",
    "Otherwise",
    "OutputMode",
    "Pipeline",
    "Problem",
    "Python",
    "Session",
    "Sink",
    "Source",
    "SourceFormat",
    "Sql",
    "Step",
    "Table",
    "TopicSink",
    "ValueFormat",
    "Where",
    "Window",
    "changed",
    "doc",
]
