"""A declared pipeline as plain Structured Streaming: a query for each sink, and one for the dead letters of a source.

for flow in compile_pipeline(load("orders.toml"), spark):
    query = flow.start()
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.spark.pipelines.declaration import DeadLetters, Pipeline, Sink, Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


@dataclass(frozen=True, slots=True)
class Flow:
    """One query of a pipeline, not yet started."""

    name: str
    """The sink's name, or `dead-letters.<source>`."""
    sink: Sink | DeadLetters
    sources: tuple[Source, ...]
    """Whose records it reads, as far as that is known without Spark: all of them if there is SQL."""
    checkpoint: str
    groups: Mapping[str, str]
    """The group that each source's offsets are committed to, by the source's name; for those that have one."""
    frame: DataFrame = field(repr=False)
    """What is written, with the sink's columns."""
    starter: Callable[[], StreamingQuery] = field(repr=False)

    def start(self) -> StreamingQuery:
        """Start the query; its name is `<pipeline>.<flow>`."""
        return self.starter()


def compile_pipeline(pipeline: Pipeline, spark: SparkSession, *, trigger: str | None = None) -> list[Flow]:
    """The queries of a pipeline, in the order of its sinks, then the dead letters.

    `trigger` goes before the declared one, in the same words: `available-now` for a run that ends. Everything is
    checked first; SQL that Spark refuses is a `DeclarationError` with the line of its step.
    """
    raise NotImplementedError
