"""Let Spark treat `format("ottla")` as its own Kafka source, where it restricts sources in Python.

Spark plans a Python source once per `load()`, and keeps the offsets and filters of the first query. It refuses update
mode on Python sinks, does not give Python sources the options of CREATE TABLE, and has no metrics for them. It cannot
exchange the rows of a cached table while queries read it. `install` adds two rules to a session that change this:
`PlanEachQuery.java` for the optimizer, `ReportLag.java` for the analyzer. The second one also lets a daemon fork the
Python processes of streaming queries (`ForkedReader.java`). Spark's own compiler for generated code compiles them. They
run only on the driver, so there is no jar to distribute.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("ottla.spark")
#: In the environment of the processes that plan queries if each query is planned by itself. Otherwise Spark keeps the
#: plan: filters must not narrow it, and its ranges must not end at the present offsets.
PLANS_EACH_QUERY = "OTTLA_SPARK_PLANS_EACH_QUERY"
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"

#: The rule for the optimizer, by application and extensions.
_installed: dict[tuple[str, int], Any] = {}


def install(spark: SparkSession) -> bool:
    """Add the rules to a session; returns whether the session has them.

    A session of Spark Connect is in the server, where no Python can add them.
    """
    return planner(spark) is not None


def planner(spark: SparkSession) -> Any:
    """The PlanEachQuery of a session, or None if there can be none."""
    session = getattr(spark, "_jsparkSession", None)
    if session is None:
        return None
    from py4j.protocol import Py4JError

    extensions = session.extensions()
    # Sessions made from each other share their extensions.
    key = (spark.sparkContext.applicationId, spark._jvm.System.identityHashCode(extensions))
    if key not in _installed:
        try:
            plans = _compiled(spark._jvm, session.getClass(), "PlanEachQuery")
            reports = _compiled(spark._jvm, _forking(spark._jvm, plans), "ReportLag")
            plan = plans.newInstance()
            extensions.injectPreCBORule(plan)
            # The analyzer of a session that has run a query does not change any more; then there are no metrics.
            extensions.injectResolutionRule(reports.newInstance())
        except Py4JError as error:
            log.warning(
                "this version of Spark plans format('ottla') once per load(): call load() again for new records (%s)",
                str(error).partition("\n")[0],
            )
            return None
        _installed[key] = plan
        _tell_planners(spark._jvm, session)
    return _installed[key]


def _tell_planners(jvm: Any, session: Any) -> None:
    """Set PLANS_EACH_QUERY for the processes that plan, if they do not inherit it from `session()`."""
    from py4j.protocol import Py4JError

    if jvm.System.getenv(PLANS_EACH_QUERY) is None:
        with suppress(Py4JError):  # a data source that Spark does not find is reported when it is used
            source = session.sessionState().dataSourceManager().lookupDataSource("ottla")
            source.dataSourceCls().envVars().put(PLANS_EACH_QUERY, "true")


def _forking(jvm: Any, plan: Any) -> Any:
    """The class that forks Python processes; `plan` if this version of Spark has others. Spark then starts them."""
    from py4j.protocol import Py4JError

    try:
        return _compiled(jvm, plan, "ForkedReader")
    except Py4JError as error:
        log.info("streaming queries start a new Python each: %s", str(error).partition("\n")[0])
        return plan


def _compiled(jvm: Any, neighbour: Any, name: str) -> Any:
    """A class that sees the classes that the class `neighbour` sees."""
    from importlib.resources import files

    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(neighbour.getClassLoader())
    compiler.cook(files(__name__).joinpath(f"{name}.java").read_text("utf-8"))
    return compiler.getClassLoader().loadClass(f"ottla.spark.{name}")
