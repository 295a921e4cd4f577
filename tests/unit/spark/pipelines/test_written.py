"""A query does not start if its output belongs to another checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.spark.pipelines.checkpoints import CheckpointError, read_id
from ottla.spark.pipelines.places import Local
from ottla.spark.pipelines.written import Writer, WrittenError, check_written, claim_table

ONE, TWO = "5c1cf2a0-6a0e-4a2f-9d6e-1f2d3c4b5a69", "00000000-6a0e-4a2f-9d6e-1f2d3c4b5a69"


def logged(table: Path, *names: str) -> Local:
    (table / "_spark_metadata").mkdir(parents=True, exist_ok=True)
    for name in names:
        (table / "_spark_metadata" / name).write_text("v1")
    return Local(table)


def writer(path: Path, planned: int, query: str = ONE) -> Writer:
    file = path / "my orders.toml"
    file.touch()
    return Writer("orders", "table", query, "state/table", planned, str(file))


@pytest.mark.parametrize(("written", "planned"), [(-1, -1), (-1, 5), (5, 5), (4, 5)])
def test_an_output_within_the_checkpoint_is_fine(tmp_path: Path, written: int, planned: int) -> None:
    check_written("the table t", written, writer(tmp_path, planned))


def test_a_new_checkpoint_on_an_old_table_is_refused(tmp_path: Path) -> None:
    table = logged(tmp_path / "t", "8", "9.compact", "10", ".11.crc")
    with pytest.raises(WrittenError) as caught:
        claim_table(table, "t", writer(tmp_path, -1))
    assert str(caught.value) == (
        "the table t has batches up to 10, but the checkpoint state/table is new. The batches 0 to 10 would be skipped "
        "and their rows lost. To start again from the beginning, run "
        f"`ottla pipeline reset '{tmp_path}/my orders.toml' --sink table`, or set another path for the sink"
    )
    assert table.read("_ottla_writer") is None


def test_a_checkpoint_from_a_backup_is_refused(tmp_path: Path) -> None:
    table = logged(tmp_path / "t", "0", "1", "2")
    claim_table(table, "t", writer(tmp_path, 2))
    with pytest.raises(WrittenError, match=r"ends at batch 1: .* The batches 2 to 2 would be skipped .* Restore both"):
        claim_table(table, "t", writer(tmp_path, 1))


def test_a_table_of_another_query_is_refused(tmp_path: Path) -> None:
    table = Local(tmp_path / "t")
    claim_table(table, "t", writer(tmp_path, -1))
    claim_table(table, "t", writer(tmp_path, 0))
    with pytest.raises(WrittenError, match="the table t belongs to sink table of pipeline orders with another"):
        claim_table(table, "t", writer(tmp_path, 7, TWO))
    (tmp_path / "t" / "_ottla_writer").write_text("")
    with pytest.raises(WrittenError, match="belongs to sink"):
        claim_table(table, "t", writer(tmp_path, 7))


def test_a_pipeline_without_a_file_is_told_what_to_move(tmp_path: Path) -> None:
    with pytest.raises(WrittenError, match="beginning, move the output and the checkpoint state/table away"):
        check_written("the table t", 0, Writer("orders", "table", ONE, "state/table", file="<stdin>"))


@pytest.mark.parametrize("content", ["", "{}", "garbage", '{"id": 7}', '{"id": "x"}', "[]"])
def test_a_damaged_metadata_file_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "metadata").write_text(content)
    with pytest.raises(CheckpointError, match=r"state/metadata is damaged: it must contain \{\"id\": "):
        read_id(Local(tmp_path), "state")
    (tmp_path / "metadata").write_text(json.dumps({"id": ONE}))
    assert read_id(Local(tmp_path), "state") == ONE
