"""Run a command with a Spark session, and report Spark's errors in one line."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ottla.cli.options import client_config
from ottla.cli.terminal import note
from ottla.errors import OttlaError
from ottla.spark.sessions import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkFailed(OttlaError):
    """Spark is not installed, or a job failed."""


@contextmanager
def spark_session(
    name: str, master: str, *, fast: bool = False, conf: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session without web UI, stopped at the end; Spark's errors become SparkFailed."""
    note("starting Spark ...")
    try:
        settings = {"spark.ui.enabled": "false", **(conf or {})}
        spark = session(name, master=master, log_level="fatal", conf=settings, fast=fast)
    except ImportError as error:
        raise SparkFailed(str(error)) from None
    from pyspark.errors import PySparkException

    try:
        yield spark
    except PySparkException as error:
        raise SparkFailed(_summary(error)) from None
    finally:
        spark.stop()


def _summary(error: Exception) -> str:
    """Spark's message without the query plan and the stack."""
    text = str(error)
    reason = [line for line in text.splitlines() if line.startswith("ottla.") and ": " in line]
    return reason[-1].partition(": ")[2] if reason else text.split("\n\n")[0].split("; line ")[0].split(";\n")[0]


def spark_options(args: Namespace) -> dict[str, str]:
    """Data source options for ``--bootstrap-server`` and ``--command-config``."""
    config = client_config(args)
    servers = config["bootstrap.servers"]
    options = {f"kafka.{name}": str(value) for name, value in config.items()}
    options["kafka.bootstrap.servers"] = ",".join(servers) if isinstance(servers, list) else str(servers)
    return options
