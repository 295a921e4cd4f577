"""One Spark session and one broker for all tests here. Requires pyspark: see `make spark`."""

from __future__ import annotations

import gc
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

import ottla
from compat.brokers import outside_broker, start_broker
from ottla.clients.admin.blocking import Admin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

if importlib.util.find_spec("pyspark") is None:
    collect_ignore_glob = ["test_*.py"]

CONFIGS = {"group.initial.rebalance.delay.ms": "0", "log.cleaner.backoff.ms": "50"}

#: Tables of a few rows: to compile a query, or to plan it again on the way, takes longer than to run it.
CONF = {
    "spark.driver.memory": "512m",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
}

#: Settings that `ottla pipeline run` sets.
CHANGED_BY_RUN = (
    "spark.sql.streaming.stopTimeout",
    "spark.sql.streaming.numRecentProgressUpdates",
    "spark.sql.shuffle.partitions",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/spark/"):
            # Spark leaves sockets and files to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            # The first test starts Spark, which takes minutes on a loaded machine.
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An embedded broker, or Apache Kafka with OTTLA_COMPAT_BROKER=kafka."""
    outside = outside_broker()
    if outside is not None:
        yield outside
        return
    with start_broker(CONFIGS, tmp_path_factory.mktemp("spark")) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from ottla.spark import session

    found = session("tests", master="local[2]", fast=True, log_level="fatal", conf=CONF)
    yield found
    found.stop()


@pytest.fixture(autouse=True)
def active(spark: SparkSession) -> None:
    """Activate the session: py4j may have switched this thread to another JVM thread."""
    from ottla.spark import activate

    activate(spark)


@pytest.fixture(scope="module", autouse=True)
def leave_nothing_behind() -> Iterator[None]:
    """Collect what Spark leaves open here. Later tests fail if it is found in their time."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def admin(servers: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=servers) as admin:
        yield admin


class Topics:
    """Create topics with unique names, fill them, and read them with Spark."""

    def __init__(self, spark: SparkSession, servers: str, admin: Admin) -> None:
        self.spark = spark
        self.servers = servers
        self.admin = admin
        # Without refreshes: each creates topics again that a test has deleted.
        self.producer = ottla.Producer(bootstrap_servers=servers, metadata_max_age_ms=3_600_000)

    def make(self, partitions: int = 1, name: str | None = None, **configs: str) -> str:
        name = name or f"topic-{uuid4().hex[:12]}"
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        self.admin.create_topics(ottla.NewTopic(name, partitions, configs=settings))
        return name

    def fill(self, topic: str, count: int, *, partition: int = 0, first: int = 0, **more: Any) -> None:
        """Send records with the values first, first + 1, …; `more` is for `send`."""
        sent = [
            self.producer.send(topic, str(number).encode(), partition=partition, **more)
            for number in range(first, first + count)
        ]
        for future in sent:
            future.result(20)

    def options(self, subscribe: str | None, /, **options: Any) -> dict[str, str]:
        """Underscores in names become dots, as in ottla's clients."""
        named = {name.replace("_", "."): str(value) for name, value in options.items()}
        what = {} if subscribe is None else {"subscribe": subscribe}
        return {"kafka.bootstrap.servers": self.servers, **what, **named}

    def read(self, topic: str | None, **options: Any) -> DataFrame:
        return self.spark.read.format("ottla").options(**self.options(topic, **options)).load()

    def stream(self, topic: str | None, **options: Any) -> DataFrame:
        return self.spark.readStream.format("ottla").options(**self.options(topic, **options)).load()

    def values(self, topic: str | None, **options: Any) -> list[int]:
        """The numbers written by `fill`, sorted."""
        return sorted(int(row.value) for row in self.read(topic, **options).select("value").collect())

    def committed(self, group: str) -> dict[str, int]:
        return {str(key): one.offset for key, one in self.admin.list_group_offsets(group).items()}


@pytest.fixture(scope="session")
def topics(spark: SparkSession, servers: str, admin: Admin) -> Iterator[Topics]:
    found = Topics(spark, servers, admin)
    yield found
    found.producer.close(5)


@pytest.fixture
def own_session(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let commands use the session of the tests, without stopping it."""
    monkeypatch.setattr(type(topics.spark), "stop", lambda spark: None)
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", topics.servers)
    before = {name: topics.spark.conf.get(name, None) for name in CHANGED_BY_RUN}
    yield
    for name, value in before.items():
        if value is None:
            topics.spark.conf.unset(name)
        else:
            topics.spark.conf.set(name, value)


def drain(frame: DataFrame, directory: Path, name: str = "table") -> list[Any]:
    """Run a stream over the current records, into a table with a checkpoint; returns the progress."""
    query = (
        frame.selectExpr("cast(value as string) value", "partition", "offset")
        .writeStream.format("parquet")
        .option("path", str(directory / name))
        .option("checkpointLocation", str(directory / f"{name}-checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(60), "the query did not end"
    finally:
        query.stop()
    return [one for one in query.recentProgress if one.numInputRows]


def table(spark: SparkSession, directory: Path, name: str = "table") -> list[int]:
    frame = spark.read.schema("value string").parquet(str(directory / name))
    return sorted(int(row.value) for row in frame.collect())
