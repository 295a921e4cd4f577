"""Tables with `refresh`: a running query sees their new rows after that time.

Spark plans a query once, with the list of files of a table. For a cached table it looks up the rows again for each
micro-batch, so new rows appear if the cache is refreshed. A micro-batch sees the old rows or the new ones. Files may be
replaced in between.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ottla.spark.pipelines.declaration import Pipeline, Table
from ottla.spark.pipelines.failures import cause_of
from ottla.spark.pipelines.shared.plans import scala_list
from ottla.spark.pipelines.times import millis
from ottla.spark.sessions import activate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("ottla.spark")
#: How often the thread looks whether a table is due, and whether the queries have ended.
TICK_SECONDS = 0.5


class Query(Protocol):
    """The used part of Spark's StreamingQuery."""

    @property
    def isActive(self) -> bool: ...  # noqa: N802 (Spark's name)


class Refresher:
    """Refresh the tables of a pipeline in a thread, while its queries run."""

    def __init__(self, pipeline: Pipeline, spark: SparkSession, frames: Mapping[str, DataFrame]) -> None:
        self._spark = spark
        self._tables = [table for table in pipeline.tables if table.refresh]
        self._frames = {table.name: frames[table.name] for table in self._tables}
        self._queries: list[Query] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def watch(self, query: Query) -> None:
        """Go on until this query has ended, too."""
        if not self._tables:
            return
        if not hasattr(self._spark, "_jsparkSession"):
            log.warning("tables are not refreshed over Spark Connect: their rows are those of the start")
            return
        with self._lock:
            self._queries.append(query)
            if self._thread is None:
                for frame in self._frames.values():
                    frame.persist()
                self._thread = threading.Thread(target=self._run, name="refresh of tables", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        due = {table.name: _due(table) for table in self._tables}
        while self._is_needed():
            time.sleep(TICK_SECONDS)
            for table in [one for one in self._tables if time.monotonic() >= due[one.name]]:
                self._refresh_safely(table)
                due[table.name] = _due(table)

    def _is_needed(self) -> bool:
        """Whether a query runs; frees the memory if not."""
        with self._lock:
            try:
                if any(query.isActive for query in self._queries):
                    return True
                for frame in self._frames.values():
                    frame.unpersist()
            except Exception as error:  # Java has exited
                log.info("the refresh of tables ends: %s", error)
            self._thread = None
            return False

    def _refresh_safely(self, table: Table) -> None:
        try:
            self._refresh(self._frames[table.name])
        except Exception as error:
            log.warning("table %s could not be refreshed, and keeps its rows: %s", table.name, cause_of(error))

    def _refresh(self, frame: DataFrame) -> None:
        """Read a table again for the next micro-batch. If its files cannot be listed, the rows in memory stay."""
        activate(self._spark)
        _list_files(frame)
        frame.unpersist()
        frame.persist().count()


def _list_files(frame: DataFrame) -> None:
    """List the files of a frame again; Spark keeps the list of the first time. A topic has none.

    To Spark, a missing directory is an empty table. Here it is an error.
    """
    spark: Any = frame.sparkSession
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    for leaf in scala_list(frame._jdf.queryExecution().analyzed().collectLeaves()):
        if leaf.getClass().getSimpleName() == "LogicalRelation":
            files = leaf.relation().location()
            for path in scala_list(files.rootPaths()):
                if not path.getFileSystem(conf).exists(path):
                    raise FileNotFoundError(f"{path} does not exist")
            files.refresh()


def _due(table: Table) -> float:
    return time.monotonic() + millis(table.refresh or "") / 1000
