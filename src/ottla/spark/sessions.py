"""Start a Spark session without setup: finds Java (or uses the one from PyPI), and keeps the terminal quiet.

    from ottla.spark import session

    spark = session()
    spark.read.format("ottla").option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "orders").load()

Any other session can use `format("ottla")`, too.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.spark.java import cache, java_home, write_whole
from ottla.spark.planning import PLANS_EACH_QUERY, PUSHDOWN, install

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOGGING = """\
rootLogger.level = {level}
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = {level}
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""
_LEVELS = ("off", "fatal", "error", "warn", "info", "debug")
#: For tests and short queries: a fast JVM start, and checkpoints that may not survive a machine crash.
_FAST = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}
#: Writes checkpoints in local directories without a process (`chmod`) for each file. Like Spark's default, it writes a
#: file under another name and renames it, so a killed driver leaves no half file.
_CHECKPOINT_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
#: Without the checks of bytecode, classes load in 7 % less CPU time.
_FAST_JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
#: A stopped query that was in Python searches the text of its error with a regular expression that recurses for each
#: character. The default stack is too small for it, and a stack trace of Java appears.
_STACK = "-Xss16m"
_LINKED = ("jars", "bin", "sbin")
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
#: These loggers repeat the raised exception with the whole Java stack.
_REPEATING = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


def session(
    app_name: str = "ottla",
    *,
    master: str = "local[*]",
    conf: Mapping[str, str] | None = None,
    log_level: str = "error",
    fast: bool = False,
) -> SparkSession:
    """A session with `format("ottla")`; returns the running one, if any.

    `log_level` applies to Spark's log on the terminal. `fast` is for tests: a fast start, and checkpoints that may not
    survive a machine crash.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise ImportError("pyspark is not installed: run  pip install 'ottla[spark]'") from None
    if SparkSession.getActiveSession() is None:
        prepare(master)
        os.environ[PLANS_EACH_QUERY] = "true"
    if log_level not in _LEVELS:
        raise ValueError(f"log_level must be one of {', '.join(_LEVELS)}, not {log_level!r}")
    builder = SparkSession.builder.appName(app_name).master(master)
    for name, value in {**_settings(master, log_level, fast), **(conf or {})}.items():
        builder = builder.config(name, value)
    found = builder.getOrCreate()
    if not activate(found):
        found.conf.set(PUSHDOWN, "false")
    return found


def activate(spark: SparkSession) -> bool:
    """Make `spark` the active session of this thread, and let it plan each query on `format("ottla")` by itself.

        spark = SparkSession.builder.getOrCreate()
        ottla.spark.activate(spark)

    Spark looks for Python data sources in the active session. PySpark sets it only in the thread that creates the
    session; in other threads, `save` does not find the data source. `session()` calls this function. Returns whether
    queries are planned one by one (see docs/spark.md); with Spark Connect, the server decides.
    """
    session = getattr(spark, "_jsparkSession", None)
    if session is not None:
        spark._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session)
    return install(spark)


def clone(spark: SparkSession) -> SparkSession:
    """A session with the same settings, and views of its own. Requires a classic session."""
    from pyspark.sql import SparkSession as Sessions

    session: Any = spark
    return Sessions(session.sparkContext, session._jsparkSession.cloneSession())


#: What Spark adds to the environment of a Python data source when a streaming query starts.
_STREAM_ENVIRONMENT = ("SPARK_LOCAL_DIRS", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE", "SPARK_PYTHON_RUNTIME")


def settle_environment(spark: SparkSession) -> None:
    """Let several streaming queries start at the same time.

    All of them share one map with the environment of the data source. Spark adds names to it when a query starts. If
    another query is sending its tasks at that moment, it fails: "Illegal size 5 of collection, expected 6". With all
    names there from the beginning, the size does not change. Spark sets the values before each use.
    """
    session: Any = spark
    if hasattr(session, "_jsparkSession"):
        manager = session._jsparkSession.sessionState().dataSourceManager()
        environment = manager.lookupDataSource("ottla").dataSourceCls().envVars()
        for name in _STREAM_ENVIRONMENT:
            environment.putIfAbsent(name, "")


def prepare(master: str = "local[*]") -> None:
    """Set the environment for Spark: Java, Python, and for local masters a home where workers start faster."""
    # Irrelevant: pandas is not used.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    _silence()
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if master.startswith("local") and "SPARK_HOME" not in os.environ:
        os.environ["SPARK_HOME"] = str(_light_home())


def _silence() -> None:
    from pyspark.logger import PySparkLogger

    for name in _REPEATING:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


def _settings(master: str, log_level: str, fast: bool) -> dict[str, str]:
    java = f"-Dlog4j2.configurationFile={_logging(log_level).as_uri()} {_STACK}"
    settings = {
        "spark.ui.showConsoleProgress": "false",
        "spark.python.unix.domain.socket.enabled": "true",
        PUSHDOWN: "true",
        "spark.driver.extraJavaOptions": f"{java} {_FAST_JAVA}" if fast else java,
    }
    if on_this_machine(master):
        # Keep traffic on the machine, and do not depend on the host name.
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        settings["spark.sql.streaming.checkpointFileManagerClass"] = _CHECKPOINT_FILES
        if os.environ.get("PYSPARK_PYTHON") == sys.executable:
            settings["spark.python.daemon.module"] = "ottla.spark.daemon"
    return {**settings, **_FAST} if fast else settings


def on_this_machine(master: str) -> bool:
    """Whether everything runs on this machine.

    >>> [on_this_machine(one) for one in ("local[2]", "spark://127.0.0.1:7077", "spark://big:7077", "yarn")]
    [True, True, False, False]
    """
    if master.startswith("local"):
        return True
    hosts = master.removeprefix("spark://").split(",")
    return master.startswith("spark://") and all(host.rpartition(":")[0] in _LOOPBACK for host in hosts)


def _logging(level: str) -> Path:
    path = cache("logging") / f"{level}.properties"
    if not path.exists() or path.read_text() != _LOGGING.format(level=level):
        write_whole(path, _LOGGING.format(level=level))
    return path


def _light_home() -> Path:
    """A SPARK_HOME without the Python archive, so that workers import the installed, compiled pyspark."""
    import pyspark

    real = Path(pyspark.__file__).parent
    home = cache(f"spark-{pyspark.__version__}-{hashlib.sha256(str(real).encode()).hexdigest()[:12]}")
    for name in _LINKED:
        if not (home / name).exists() and (real / name).exists():
            (home / name).unlink(missing_ok=True)
            try:
                (home / name).symlink_to(real / name)
            except FileExistsError:  # another process was faster
                pass
    return home
