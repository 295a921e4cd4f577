"""A Spark session for a command: started, stopped whatever happens, and its errors told in one line."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ottla.cli.options import client_config
from ottla.cli.terminal import note
from ottla.errors import OttlaError
from ottla.spark.sessions import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkFailed(OttlaError):
    """Spark is not there, or cannot do what was asked."""


@contextmanager
def spark_session(name: str, master: str) -> Iterator[SparkSession]:
    """For jobs over whole topics: the settings of Spark, without its web page."""
    note("starting Spark ...")
    try:
        spark = session(name, master=master, log_level="fatal", conf={"spark.ui.enabled": "false"})
    except ImportError as error:
        raise SparkFailed(str(error)) from None
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def spark_errors() -> Iterator[None]:
    """Errors of Spark without the plan and the stack that it adds."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        raise SparkFailed(told(error)) from None


def told(error: Exception) -> str:
    """What is wrong, in one line."""
    text = str(error)
    reason = [line for line in text.splitlines() if line.startswith("ottla.") and ": " in line]
    return reason[-1].partition(": ")[2] if reason else text.split("\n\n")[0].split("; line ")[0].split(";\n")[0]


def spark_options(args: Namespace) -> dict[str, str]:
    """The options of the data source for the cluster of ``--bootstrap-server`` and ``--command-config``."""
    config = client_config(args)
    servers = config["bootstrap.servers"]
    options = {f"kafka.{name}": str(value) for name, value in config.items()}
    options["kafka.bootstrap.servers"] = ",".join(servers) if isinstance(servers, list) else str(servers)
    return options
