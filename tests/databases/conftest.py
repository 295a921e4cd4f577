"""Real databases for the jdbc sink, and a Spark session with their drivers. Run it with `make compat-postgres`.

Postgres, and MariaDB if it is installed, are started in temporary directories. SQLite and H2 run in the JVM.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from databases.servers import MariaDb, Postgres
from ottla.spark.pipelines.jdbc.drivers import DRIVERS
from spark.conftest import CONF, active, admin, servers, topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["active", "admin", "servers", "topics"]

if not os.environ.get("OTTLA_DATABASES"):
    collect_ignore_glob = ["test_*.py"]

PACKAGES = ",".join(DRIVERS[name].package for name in ("postgresql", "mariadb", "sqlite", "h2"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/databases/"):
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from ottla.spark import session

    conf = {**CONF, "spark.jars.packages": PACKAGES}
    found = session("databases", master="local[2]", fast=True, log_level="fatal", conf=conf)
    yield found
    found.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    server = Postgres()
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDb]:
    server = MariaDb()
    server.start()
    yield server
    server.stop()


@pytest.fixture(params=["postgresql", "mariadb", "sqlite", "h2"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """The keys of a sink for a table that does not exist yet."""
    table = f"changes_{uuid4().hex[:8]}"
    if request.param == "sqlite":
        return {"url": f"jdbc:sqlite:{tmp_path}/shop.db", "table": table}
    if request.param == "h2":
        return {"url": f"jdbc:h2:mem:{uuid4().hex};DB_CLOSE_DELAY=-1", "table": table}
    server = request.getfixturevalue("postgres" if request.param == "postgresql" else "mariadb")
    return {"url": server.url, "user": "ottla" if request.param == "postgresql" else "root", "table": table}
