"""Checkpoints that were deleted, restored or damaged: no row is lost without an error, and the advice works."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.cli.main import main
from ottla.spark.pipelines import DeclarationError, compile_pipeline, load
from ottla.spark.pipelines.places import Remote
from ottla.spark.pipelines.written import WrittenError
from spark.test_spark_pipelines import committed, run, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark.conftest import Topics

pytestmark = pytest.mark.spark

DECLARED = """\
name = "orders"
checkpoint = "state"
bootstrap_servers = "SERVERS"
read = "separate"

[[source]]
name = "orders"
topics = ["NAME"]
schema = "id BIGINT NOT NULL"

[[sink]]
name = "table"
format = "parquet"
path = "table"

[[sink]]
name = "out"
format = "topic"
topic = "OUT"
"""


@pytest.fixture
def file(topics: Topics, tmp_path: Path) -> Path:
    text = DECLARED.replace("NAME", topics.make()).replace("OUT", topics.make()).replace("SERVERS", topics.servers)
    (tmp_path / "orders.toml").write_text(text)
    return tmp_path / "orders.toml"


def produce(topics: Topics, file: Path, numbers: range) -> None:
    send(topics, load(file).sources[0].topics[0], *(f'{{"id": {number}}}' for number in numbers))


def ids(spark: SparkSession, file: Path) -> list[int]:
    return sorted(row.id for row in spark.read.parquet(str(file.parent / "table")).select("id").collect())


def refused(file: Path, spark: SparkSession, flow: str) -> str:
    """Why a flow does not start."""
    (one,) = [one for one in compile_pipeline(load(file), spark, trigger="available-now") if one.name == flow]
    with pytest.raises((WrittenError, DeclarationError)) as caught:
        one.start()
    return str(caught.value)


def follow(advice: str) -> None:
    """Run the command that a message names."""
    (command,) = re.findall(r"`ottla (.*?)`", advice)
    assert main([*shlex.split(command), "--yes"]) == 0


def test_a_deleted_checkpoint_loses_no_rows(topics: Topics, spark: SparkSession, file: Path) -> None:
    produce(topics, file, range(100))
    run(load(file), spark, "table")
    produce(topics, file, range(100, 150))
    shutil.rmtree(file.parent / "state")
    advice = refused(file, spark, "table")
    assert f"the checkpoint {file.parent}/state/table is new. The batches 0 to 0 would be skipped" in advice
    assert ids(spark, file) == list(range(100))
    follow(advice)
    run(load(file), spark, "table")
    assert ids(spark, file) == list(range(150))
    (old,) = file.parent.glob("table.before-*")
    assert spark.read.parquet(str(old)).count() == 100

    # Another pipeline cannot write the same table.
    other = file.with_name("other.toml")
    other.write_text(file.read_text().replace('"state"', '"other"').replace('"orders"\nch', '"other"\nch'))
    (file.parent / "table" / "_spark_metadata" / "0").rename(file.parent / "saved")
    assert "belongs to sink table of pipeline orders with another checkpoint" in refused(other, spark, "table")
    (file.parent / "saved").rename(file.parent / "table" / "_spark_metadata" / "0")


def test_a_checkpoint_from_a_backup_loses_no_rows(topics: Topics, spark: SparkSession, file: Path) -> None:
    state, backup = file.parent / "state", file.parent / "backup"
    produce(topics, file, range(10))
    run(load(file), spark)
    shutil.copytree(state, backup)
    produce(topics, file, range(10, 20))
    run(load(file), spark)
    state.rename(file.parent / "newest")
    backup.rename(state)
    produce(topics, file, range(20, 30))
    for flow in ("table", "out"):
        advice = refused(file, spark, flow)
        assert "has batches up to 1, but the checkpoint" in advice
        assert "ends at batch 0: one of them is from a backup or a copy. The batches 1 to 1 would be skipped" in advice
    shutil.rmtree(state)
    (file.parent / "newest").rename(state)
    run(load(file), spark)
    assert ids(spark, file) == list(range(30))
    sink = load(file).sinks[1]
    assert len(committed(topics, getattr(sink, "topic"))) == 30  # noqa: B009


@pytest.mark.long
def test_a_damaged_metadata_file_is_named(topics: Topics, spark: SparkSession, file: Path) -> None:
    produce(topics, file, range(3))
    run(load(file), spark)
    for flow in ("table", "out"):
        metadata = file.parent / "state" / flow / "metadata"
        good = metadata.read_text()
        metadata.write_text("")
        advice = refused(file, spark, flow)
        assert f"{metadata} is damaged: it must contain" in advice
        assert "Restore this file from a backup" in advice
        metadata.write_text(good)
    run(load(file), spark, "out")
    (file.parent / "state" / "table" / "metadata").write_text("{")
    follow(refused(file, spark, "table"))
    run(load(file), spark, "table")
    assert ids(spark, file) == [0, 1, 2]


def test_changed_steps_and_other_pipelines_are_refused(topics: Topics, spark: SparkSession, file: Path) -> None:
    unique = '[[step]]\nname = "unique"\ndedupe = ["id"]\nwithin = "1 hour"\n\n[[sink]]\nname = "table"'
    file.write_text(file.read_text().replace('[[sink]]\nname = "table"', unique))
    produce(topics, file, range(10))
    run(load(file), spark, "table")
    text = file.read_text()
    file.write_text(text.replace('name = "orders"\nch', 'name = "others"\nch'))
    assert "belongs to pipeline orders, not to others" in refused(file, spark, "table")
    file.write_text(text.replace('dedupe = ["id"]', 'dedupe = ["_partition"]'))
    advice = refused(file, spark, "table")
    assert 'dedupe was ["id"] and is ["_partition"]. Undo this change' in advice
    follow(advice)
    run(load(file), spark, "table")
    assert len(ids(spark, file)) == 1


def test_other_file_systems_are_read_with_spark(spark: SparkSession, tmp_path: Path) -> None:
    directory = Remote(f"file:{tmp_path}/new", spark)
    assert (directory.names(), directory.read("mark")) == ([], None)
    assert directory.create("mark", "größer")
    assert not directory.create("mark", "other")
    assert directory.read("mark") == "größer"
    assert Remote(f"file:{tmp_path}", spark).names("new") == ["mark"]
