"""``ottla pipeline reset``: checkpoints and tables move aside, and nothing else changes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from uuid import uuid4

import pytest
from tests.unit.cli.cli_results import Ottla

from ottla.clients.admin.blocking import Admin
from ottla.spark.pipelines.run_lock import run_lock
from ottla.types import TopicPartition

DECLARED = """\
name = "orders"
checkpoint = "state"

[[source]]
name = "orders"
topics = ["TOPIC"]
schema = "id BIGINT NOT NULL"
group_id = "TOPIC-group"

[[sink]]
name = "table"
format = "parquet"
path = "tables/orders"

[[sink]]
name = "out"
format = "topic"
topic = "large"

[[sink]]
name = "base"
format = "jdbc"
url = "jdbc:postgresql://localhost/shop"
table = "shop.orders"

[dead_letters]
topic = "dead"
"""
QUERY = "5c1cf2a0-6a0e-4a2f-9d6e-1f2d3c4b5a69"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A pipeline that ran: every flow has a checkpoint, and the table has files."""
    path = tmp_path / "orders.toml"
    path.write_text(DECLARED.replace("TOPIC", f"topic-{uuid4().hex[:8]}"))
    for flow in ("table", "out", "base", "dead-letters/orders"):
        (tmp_path / "state" / flow / "offsets").mkdir(parents=True)
        (tmp_path / "state" / flow / "metadata").write_text(json.dumps({"id": QUERY}))
    (tmp_path / "tables" / "orders" / "_spark_metadata").mkdir(parents=True)
    (tmp_path / "tables" / "orders" / "part-0.parquet").write_bytes(b"rows")
    return path


def entries(directory: Path) -> list[str]:
    return sorted(re.sub(r"\.before-\d{8}-\d{6}$", ".before", one.name) for one in directory.iterdir())


def test_a_table_and_its_checkpoint_move_aside(ottla: Ottla, file: Path) -> None:
    here = file.parent
    dry = ottla("pipeline", "reset", str(file), "--sink", "table", "--dry-run")
    assert dry.code == 0
    lines = dry.text.splitlines()
    assert lines[0] == "table:"
    assert lines[1].startswith(f"  rename the checkpoint {here}/state/table to table.before-")
    assert lines[2].startswith(f"  rename the table {here}/tables/orders to orders.before-")
    assert entries(here / "tables") == ["orders"], "a dry run changes nothing"

    done = ottla("pipeline", "reset", str(file), "--sink", "table", "--yes")
    assert done.code == 0
    assert done.text.splitlines()[-1] == "done: the next run starts table again from the beginning"
    assert entries(here / "tables") == ["orders.before"]
    assert entries(here / "state") == ["base", "dead-letters", "out", "run.lock", "table.before"]
    (old,) = (here / "tables").iterdir()
    assert entries(old) == ["_spark_metadata.old", "part-0.parquet"]
    again = ottla("pipeline", "reset", str(file), "--sink", "table", "--yes")
    assert "nothing to rename: it has not run yet" in again.text
    for line in done.text.partition("To undo this before the next run:\n")[2].splitlines()[:-1]:
        subprocess.run(line, shell=True, check=True)
    assert entries(here / "tables" / "orders") == ["_spark_metadata", "part-0.parquet"]
    assert entries(here / "state") == ["base", "dead-letters", "out", "run.lock", "table"]


def test_notes_say_what_stays_in_topics_and_databases(ottla: Ottla, file: Path) -> None:
    found = ottla("pipeline", "reset", str(file), "--all", "--dry-run", "--json")
    plans = {one["flow"]: one for one in json.loads(found.out)}
    assert list(plans) == ["table", "out", "base", "dead-letters.orders"]
    assert plans["out"]["notes"] == [
        "the records stay in topic large, and the next run writes them a second time",
        f"the group ottla-spark-{QUERY} of the old checkpoint expires by itself",
    ]
    assert plans["base"]["notes"] == [
        "run DELETE FROM shop.orders before the next run: otherwise it writes all rows a second time",
        f"to clean up in the database, run DELETE FROM ottla_batches WHERE query = '{QUERY}'; "
        "DROP TABLE shop.ottla_stage_5c1cf2a06a0e",
    ]
    assert [one["what"] for one in plans["dead-letters.orders"]["moves"]] == ["checkpoint"]


def test_committed_offsets_are_forgotten_if_the_source_starts_at_them(ottla: Ottla, bootstrap: str, file: Path) -> None:
    text = file.read_text().replace("group_id", 'starting_offsets = "committed"\ngroup_id')
    file.write_text(text)
    topic = text.partition('topics = ["')[2].partition('"')[0]
    key = TopicPartition(topic, 0)
    with Admin(bootstrap_servers=bootstrap) as admin:
        from ottla import NewTopic

        admin.create_topics(NewTopic(topic, 1))
        for group in (f"{topic}-group", f"{topic}-group.out"):
            admin.alter_group_offsets(group, {key: 0})
        done = ottla("pipeline", "reset", str(file), "--sink", "table", "--yes")
        assert f"delete the committed offsets of group {topic}-group for {topic}-0" in done.text
        assert done.code == 0
        assert admin.list_group_offsets(f"{topic}-group") == {}
        assert list(admin.list_group_offsets(f"{topic}-group.out")) == [key]


def test_a_reset_is_refused(ottla: Ottla, file: Path) -> None:
    here = file.parent
    with run_lock(str(here / "state")):
        running = ottla("pipeline", "reset", str(file), "--all", "--yes")
    assert running.code == 3
    assert "the pipeline is already running" in running.err
    assert "stop it first" in running.err
    asked = ottla("pipeline", "reset", str(file), "--all")
    assert (asked.code, "add --yes" in asked.err) == (2, True)
    unknown = ottla("pipeline", "reset", str(file), "--sink", "tabel", "--yes")
    assert unknown.code == 2
    assert "has no sink tabel. Did you mean table?" in unknown.err
    file.write_text(file.read_text().replace('"tables/orders"', '"."'))
    inside = ottla("pipeline", "reset", str(file), "--sink", "table", "--yes")
    assert inside.code == 1
    assert "contains the directory of the pipeline" in inside.err
    file.write_text(file.read_text().replace('path = "."', 'path = "s3a://bucket/orders"'))
    remote = ottla("pipeline", "reset", str(file), "--sink", "table", "--yes")
    assert remote.code == 1
    assert "the table s3a://bucket/orders is not a local directory" in remote.err
    assert entries(here / "state") == ["base", "dead-letters", "out", "run.lock", "table"]


def test_one_of_several_sinks_leaves_a_shared_read(ottla: Ottla, file: Path) -> None:
    here, shared = file.parent, file.parent / "state" / "shared" / "orders"
    for flow in ("table", "out", "base"):
        shutil.rmtree(here / "state" / flow)
    (shared / "late" / "out" / "3").mkdir(parents=True)
    (shared / "metadata").write_text(json.dumps({"id": QUERY}))
    (shared / "readers.json").write_text('{"readers": ["table", "out"], "left": {"base": 4}}')
    done = ottla("pipeline", "reset", str(file), "--sink", "out", "--sink", "base", "--yes")
    assert done.code == 0
    assert f"  rename the stored rows {shared}/late/out to out.before-" in done.text
    assert done.text.count(f"  take it out of the shared read {shared}") == 2
    assert "it has a query of its own from then on" in done.text
    assert json.loads((shared / "readers.json").read_text()) == {"readers": ["table"], "left": {}}
    assert entries(shared) == ["late", "metadata", "readers.json"]

    done = ottla("pipeline", "reset", str(file), "--sink", "table", "--yes")
    assert done.code == 0, "the last one takes the whole checkpoint with it"
    assert entries(shared.parent) == ["orders.before"]
    assert entries(here / "tables") == ["orders.before"]
