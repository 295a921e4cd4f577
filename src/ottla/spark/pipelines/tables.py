"""Tables with `refresh`: a running query sees their new rows after that time.

Spark plans a query once, with the list of files of a table. For a cached table it looks up the rows again for each
micro-batch. Here the frame in the query is only a name: whenever a table was read, our planning rule lets its new rows
take the place of that frame (`replace` in `PlanEachQuery.java`). A micro-batch sees the old rows or the new ones.

Files may be replaced or deleted at any time. Rows that were read stay in memory until no micro-batch can need them.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ottla.spark.pipelines.declaration import Pipeline, Table
from ottla.spark.pipelines.failures import cause_of
from ottla.spark.pipelines.shared.plans import scala_list
from ottla.spark.pipelines.times import millis
from ottla.spark.planning import planner
from ottla.spark.sessions import activate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("ottla.spark")
#: How often the thread looks whether a table is due, and whether the queries have ended.
TICK_SECONDS = 0.5

_numbers = itertools.count(1)


class Query(Protocol):
    """The used part of Spark's StreamingQuery."""

    @property
    def isActive(self) -> bool: ...  # noqa: N802 (Spark's name)

    @property
    def status(self) -> Mapping[str, Any]: ...

    @property
    def lastProgress(self) -> Any: ...  # noqa: N802


class Refresher:
    """Refresh the tables of a pipeline in a thread, while its queries run."""

    def __init__(self, pipeline: Pipeline, spark: SparkSession, frames: Mapping[str, DataFrame]) -> None:
        self._spark = spark
        self._tables = [_Table(one, frames[one.name]) for one in pipeline.tables if one.refresh]
        self.frames = {**frames, **{table.name: table.frame for table in self._tables}}
        """The tables for the queries, by name."""
        self._queries: list[Query] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def watch(self, query: Query) -> None:
        """Go on until this query has ended, too."""
        if not self._tables:
            return
        rule = planner(self._spark)
        if rule is None:
            log.warning(
                "tables are not refreshed over Spark Connect, nor with a version of Spark that ottla does not know: "
                "they keep the rows of the start"
            )
            return
        with self._lock:
            self._queries.append(query)
            if self._thread is None:
                for table in self._tables:
                    table.start(rule)
                self._thread = threading.Thread(target=self._run, name="refresh of tables", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while self._is_needed():
            time.sleep(TICK_SECONDS)
            activate(self._spark)
            for table in self._tables:
                table.tick(self._queries)

    def _is_needed(self) -> bool:
        """Whether a query runs; frees the memory if not."""
        with self._lock:
            try:
                if any(query.isActive for query in self._queries):
                    return True
                for table in self._tables:
                    table.stop()
            except Exception as error:  # Java has exited
                log.info("the refresh of tables ends: %s", error)
            self._thread = None
            return False


class _Table:
    """A table whose rows are in memory, and the frame that stands for it in queries."""

    def __init__(self, table: Table, source: DataFrame) -> None:
        self.name = table.name
        self.frame = _same_rows(source)
        self._source = source
        self._seconds = millis(table.refresh or "") / 1000
        self._due = 0.0
        self._rows: DataFrame | None = None
        self._old: list[_Old] = []

    def start(self, rule: Any) -> None:
        """Keep the rows of the first use."""
        self._rule = rule
        self.frame.persist()
        self._name = _relation(self.frame)
        self._due = time.monotonic() + self._seconds

    def tick(self, queries: Sequence[Query]) -> None:
        """Read the table again if it is due. If it cannot be read, its rows in memory stay."""
        try:
            for old in [one for one in self._old if one.is_unused()]:
                self._old.remove(old)
                self._free(old.rows)
            if time.monotonic() >= self._due:
                try:
                    self._refresh(queries)
                finally:
                    self._due = time.monotonic() + self._seconds
        except Exception as error:
            log.warning("table %s could not be refreshed, and keeps its rows: %s", self.name, cause_of(error))

    def stop(self) -> None:
        """Free the memory: no query runs any more."""
        for rows in [*[one.rows for one in self._old], self._rows]:
            self._free(rows)
        self._old.clear()
        self._rows = None
        self._rule.forget(self._name)
        self.frame.unpersist()

    def _refresh(self, queries: Sequence[Query]) -> None:
        _list_files(self._source)
        rows = _same_rows(self._source).persist()
        try:
            rows.count()
            self._rule.replace(self._name, _relation(rows))
        except BaseException:
            rows.unpersist()
            raise
        self._old.append(_Old(self._rows, queries))
        self._rows = rows

    def _free(self, rows: DataFrame | None) -> None:
        if rows is not None:
            rows.unpersist()
        else:  # those of the first use; the frame itself must stay in the cache
            self._name.cacheBuilder().clearCache(False)


class _Old:
    """Rows that were replaced, and the queries whose micro-batch at that time may still read them."""

    def __init__(self, rows: DataFrame | None, queries: Sequence[Query]) -> None:
        self.rows = rows
        self._last = [(query, _last_batch(query)) for query in queries]

    def is_unused(self) -> bool:
        self._last = [(query, last) for query, last in self._last if _may_still_run(query, last)]
        return not self._last


def _may_still_run(query: Query, last: int) -> bool:
    """Whether the micro-batch after `last` can still run."""
    return query.isActive and bool(query.status.get("isTriggerActive")) and _last_batch(query) < last + 2


def _last_batch(query: Query) -> int:
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


def _same_rows(source: DataFrame) -> DataFrame:
    """The same rows with another plan: Spark caches each by itself."""
    number = next(_numbers)
    return source.where(f"{number} = {number}")


def _relation(frame: DataFrame) -> Any:
    """What Spark reads instead of a cached frame."""
    spark: Any = frame.sparkSession
    cached = spark._jsparkSession.sharedState().cacheManager().lookupCachedData(frame._jdf)
    return cached.get().cachedRepresentation()


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
