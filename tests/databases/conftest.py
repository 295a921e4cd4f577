"""Real databases for the jdbc sink, and a Spark session with their drivers. Run it with `make compat-postgres`.

Postgres is started here, in a temporary directory. SQLite and H2 are files of the JVM.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from ottla.spark.pipelines.jdbc.drivers import DRIVERS
from spark.conftest import CONF, active, admin, servers, topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["active", "admin", "servers", "topics"]

if not os.environ.get("OTTLA_DATABASES"):
    collect_ignore_glob = ["test_*.py"]

PACKAGES = ",".join(DRIVERS[name].package for name in ("postgresql", "sqlite", "h2"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from ottla.spark import session

    conf = {**CONF, "spark.jars.packages": PACKAGES}
    found = session("databases", master="local[2]", fast=True, log_level="fatal", conf=conf)
    yield found
    found.stop()


class Postgres:
    """A throw-away server. Postgres refuses to run as root, so that root uses the account postgres."""

    def __init__(self) -> None:
        found = [shutil.which("pg_ctl"), *sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin/pg_ctl")))]
        control = next((one for one in found if one), None)
        if control is None:
            pytest.fail("this needs a Postgres server: install it (apt-get install postgresql), or add pg_ctl to PATH")
        self._bin = Path(control).resolve().parent
        self._directory = Path(tempfile.mkdtemp(prefix="ottla-postgres-"))
        self._as: list[str] = []
        if os.geteuid() == 0:
            shutil.chown(self._directory, "postgres", "postgres")
            self._as = ["runuser", "-u", "postgres", "--"]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    def start(self) -> None:
        data = str(self._directory / "data")
        self._run("initdb", "-D", data, "-A", "trust", "-U", "ottla", "--no-sync")
        settings = f"-p {self.port} -k {self._directory} -c listen_addresses=127.0.0.1 -c fsync=off"
        self._run("pg_ctl", "-D", data, "-w", "-l", str(self._directory / "log"), "-o", settings, "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self._directory / "data"), "-m", "immediate", "stop")
        shutil.rmtree(self._directory)

    def _run(self, name: str, *arguments: str) -> None:
        done = subprocess.run(
            [*self._as, str(self._bin / name), *arguments],
            cwd=self._directory,
            stdout=subprocess.DEVNULL,  # the server inherits it, and would keep a pipe open
            stderr=subprocess.STDOUT,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, f"{name} failed with {done.returncode}; see {self._directory}/log"


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    server = Postgres()
    server.start()
    yield server
    server.stop()


@pytest.fixture(params=["postgresql", "sqlite", "h2"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """The keys of a sink for a table that does not exist yet."""
    table = f"changes_{uuid4().hex[:8]}"
    if request.param == "sqlite":
        return {"url": f"jdbc:sqlite:{tmp_path}/shop.db", "table": table}
    if request.param == "h2":
        return {"url": f"jdbc:h2:mem:{uuid4().hex};DB_CLOSE_DELAY=-1", "table": table}
    server: Postgres = request.getfixturevalue("postgres")
    return {"url": f"jdbc:postgresql://127.0.0.1:{server.port}/postgres", "user": "ottla", "table": table}
