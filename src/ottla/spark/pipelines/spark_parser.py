"""Spark's own SQL parser in a small Java process, without a session.

It gives the verdict on syntax: parsers of other projects reject SQL that Spark accepts. It starts in about a second,
a session takes several.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any

from ottla.errors import OttlaError
from ottla.spark.java import java_home

_FAST = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx256m")


class NoParser(OttlaError):
    """Spark's parser cannot be used here."""


class SparkParser:
    """
    with SparkParser() as parser:
        parser.error("SELECT 1 FORM orders", is_query=True)
    """

    def __init__(self) -> None:
        try:
            import pyspark
            from py4j.java_gateway import JavaGateway
        except ImportError:
            raise NoParser("pyspark is not installed: run  pip install 'ottla[spark]'") from None
        home = os.environ.get("SPARK_HOME") or os.path.dirname(pyspark.__file__)
        try:
            self._gateway: Any = JavaGateway.launch_gateway(
                classpath=os.path.join(home, "jars", "*"),
                java_path=str(java_home() / "bin" / "java"),
                javaopts=list(_FAST),
                jarpath=_py4j_jar(home),
                die_on_exit=True,
                enable_auth=True,
            )
            self._parser = self._gateway.jvm.org.apache.spark.sql.execution.SparkSqlParser()
        except OttlaError as error:
            raise NoParser(str(error)) from None
        except Exception as error:  # py4j raises many kinds
            raise NoParser(f"Java did not start: {error}") from None

    def __enter__(self) -> SparkParser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def error(self, text: str, *, is_query: bool) -> str | None:
        """Spark's message about a syntax error; None if there is none."""
        from py4j.protocol import Py4JJavaError

        try:
            if is_query:
                self._parser.parsePlan(text)
            else:
                self._parser.parseExpression(text)
        except Py4JJavaError as error:
            return str(error.java_exception.getMessage())
        return None

    def close(self) -> None:
        self._gateway.shutdown()
        process = self._gateway.java_process
        process.stdin.close()
        process.kill()
        process.wait()


def _py4j_jar(home: str) -> str:
    jars = os.path.join(home, "jars")
    return next(os.path.join(jars, name) for name in sorted(os.listdir(jars)) if name.startswith("py4j"))
