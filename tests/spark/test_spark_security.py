"""The data source and pipelines over TLS, with users and permissions. Spark stores and shows no secrets."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ottla
from ottla.cli.main import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

MARK = "mArKeR"
USERS = {"etl": f"{MARK}-etl", "guest": f"{MARK}-guest"}
ACLS = ["etl all topic *", "etl all group *", "etl all transactional-id *", "etl all cluster"]
PIPELINE = """\
name = "orders"
checkpoint = "state"
bootstrap_servers = "{servers}"

[kafka]
"security.protocol" = "SASL_SSL"
"sasl.mechanism" = "SCRAM-SHA-256"
"sasl.username" = "etl"
"sasl.password" = "${{env:ETL_PASSWORD}}"
"ssl.cafile" = "{ca}"

[[source]]
name = "orders"
topics = ["in"]
schema = "id BIGINT NOT NULL"
group_id = "etl"

[[sink]]
name = "table"
format = "parquet"
path = "table"

[[sink]]
name = "out"
format = "topic"
topic = "out"

[dead_letters]
topic = "dead"
"""


@pytest.fixture(scope="module")
def secured() -> Iterator[ottla.Broker]:
    with ottla.Broker(tls=True, users=USERS, acls=ACLS) as broker:
        with ottla.Producer(broker.client_config("etl")) as producer:
            for number in range(20):
                producer.send("in", b'{"id": %d}' % number)
        yield broker


def options(broker: ottla.Broker, user: str, **changes: str) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in (broker.client_config(user) | changes).items()}


def test_reading_and_writing_over_tls_as_a_user(spark: SparkSession, secured: ottla.Broker) -> None:
    given = options(secured, "etl")
    frame = spark.read.format("ottla").options(**given).option("subscribe", "in").load()
    assert frame.count() == 20
    frame.select("value").write.format("ottla").options(**given).option("topic", "copy").mode("append").save()
    assert spark.read.format("ottla").options(**given).option("subscribe", "copy").load().count() == 20


@pytest.mark.parametrize(
    ("user", "changes", "message"),
    [
        ("etl", {"sasl.password": f"{MARK}-wrong"}, "(?i)authentication"),
        ("guest", {}, "(?i)authoriz|may not"),
    ],
)
def test_a_refused_user_is_told_why_without_the_password(
    spark: SparkSession, secured: ottla.Broker, user: str, changes: dict[str, str], message: str
) -> None:
    given = options(secured, user, **changes)
    with pytest.raises(Exception, match=message) as refused:
        spark.read.format("ottla").options(**given).option("subscribe", "in").load().count()
    assert MARK not in str(refused.value)


@pytest.fixture
def pipeline(secured: ottla.Broker, tmp_path: Path) -> Path:
    ca = tmp_path / "ca.pem"
    ca.write_text(secured.client_config("etl")["ssl.truststore.certificates"])
    file = tmp_path / "orders.toml"
    file.write_text(PIPELINE.format(servers=secured.bootstrap_servers, ca=ca))
    return file


@pytest.mark.usefixtures("own_session")
def test_a_pipeline_takes_its_password_from_the_environment(
    spark: SparkSession, pipeline: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ETL_PASSWORD", USERS["etl"])
    for command in ("check", "run --once", "status"):
        first, *rest = command.split()
        assert main(["pipeline", first, str(pipeline), *rest]) == 0, capfd.readouterr()
    said = capfd.readouterr()
    assert MARK not in said.out + said.err
    assert spark.read.parquet(str(pipeline.parent / "table")).count() == 20
    stored = [path for path in pipeline.parent.rglob("*") if path.is_file()]
    assert [path for path in stored if MARK.encode() in path.read_bytes()] == []


def test_a_pipeline_without_its_password_says_which_variable_is_missing(
    pipeline: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", "check", str(pipeline)]) != 0
    assert "the environment variable ETL_PASSWORD is not set" in capfd.readouterr().err


JOB = """
import sys, urllib.request
import ottla
from ottla.spark import session

broker, events, checkpoint = ottla.Broker(tls=True, users={"etl": sys.argv[1]}), *sys.argv[2:]
conf = {
    "spark.ui.enabled": "true", "spark.ui.port": "0", "spark.eventLog.enabled": "true",
    "spark.eventLog.dir": f"file://{events}", "spark.eventLog.rolling.enabled": "false",
    "spark.eventLog.compress": "false",
}
with broker:
    config = broker.client_config("etl")
    with ottla.Producer(config) as producer:
        producer.send("in", b"1")
    spark = session("secret", master="local[2]", conf=conf, log_level="info", fast=True)
    jaas = f'org.apache.kafka.ScramLoginModule required username="etl" password="{config["sasl.password"]}";'
    given = {f"kafka.{name}": value for name, value in config.items()}
    with_jaas = {key: value for key, value in given.items() if "sasl.user" not in key and "sasl.pass" not in key}
    with_jaas["kafka.sasl.jaas.config"] = jaas
    for options in (given, with_jaas):
        frame = spark.read.format("ottla").options(**options).option("subscribe", "in").load()
        assert frame.count() == 1
        frame.explain(True)
    stream = spark.readStream.format("ottla").options(**given).option("subscribe", "in").load()
    query = stream.writeStream.format("ottla").options(**with_jaas).option("topic", "out")
    query = query.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination(60)
    quoted = ", ".join(f"'{key}' '{value}'" for key, value in with_jaas.items())
    spark.sql(f"CREATE TEMPORARY VIEW w USING ottla OPTIONS ({quoted}, 'subscribe' 'in')")
    spark.sql("SELECT * FROM w").show()
    app = f"{spark.sparkContext.uiWebUrl}/api/v1/applications/{spark.sparkContext.applicationId}"
    for page in ("sql?details=true&planDescription=true", "environment", "jobs", "stages"):
        print(urllib.request.urlopen(f"{app}/{page}", timeout=20).read().decode())
    spark.stop()
"""


@pytest.mark.long
def test_neither_the_event_log_nor_the_ui_nor_the_log_has_a_password(tmp_path: Path) -> None:
    events, checkpoint = tmp_path / "events", tmp_path / "checkpoint"
    events.mkdir()
    job = tmp_path / "job.py"
    job.write_text(JOB.replace("sys.argv[1]", "open(sys.argv[1]).read()"))
    password = tmp_path / "password"
    password.write_text(USERS["etl"])
    done = subprocess.run(
        [sys.executable, str(job), str(password), str(events), str(checkpoint)],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert "InMemoryFileIndex" in done.stderr or len(done.stderr) > 1000
    assert MARK not in done.stdout + done.stderr
    logged = [path for path in events.rglob("*") if path.is_file() and path.stat().st_size > 1000]
    assert logged
    assert [path for path in (*logged, *checkpoint.rglob("*")) if path.is_file() and MARK in path.read_text()] == []
