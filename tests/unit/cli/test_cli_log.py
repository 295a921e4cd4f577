"""``ottla log dump`` on the files of a broker."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.unit.cli.cli_results import Ottla

from ottla.broker.broker import Broker


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture
def partition(ottla: Ottla, data_dir: Path) -> Path:
    """The directory of a partition with three records of alice, bob and a tombstone."""
    directory = data_dir / "orders-0"
    if not directory.exists():
        with Broker(data_dir) as broker:
            address = broker.bootstrap_servers
            lines = b"alice:\xc3\xbc\nbob:\xff\ncarol:NULL\n"
            args = ("-b", address, "-k", ":", "--null-marker", "NULL", "--header", "h=1")
            assert ottla("produce", "orders", *args, stdin=lines).code == 0
    return directory


def test_batches_are_listed(ottla: Ottla, partition: Path) -> None:
    result = ottla("log", "dump", str(partition / f"{0:020}.log"))
    assert result.code == 0
    assert re.search(r"^baseOffset: 0 lastOffset: 2 count: 3 .* isvalid: true$", result.text, re.MULTILINE)
    assert "offset: 1" not in result.text


def test_records_are_shown_on_demand(ottla: Ottla, partition: Path) -> None:
    deep = ottla("log", "dump", str(partition), "--deep").text
    assert "| offset: 1 " in deep
    assert "alice" not in deep
    records = ottla("log", "dump", str(partition), "--records").text
    assert re.search(r"\| offset: 0 .*headerKeys: \[h\] key: alice payload: ü$", records, re.MULTILINE)
    assert re.search(r"\| offset: 1 .* key: bob payload: \\xff$", records, re.MULTILINE)
    assert re.search(r"\| offset: 2 .* valueSize: -1 .* key: carol$", records, re.MULTILINE)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("missing.log", "there is no file .*missing.log"),
        ("..", "has no .log files: name the directory of a partition"),
        ("partition.metadata", "cannot dump partition.metadata"),
    ],
)
def test_mistakes_are_told_in_one_line(ottla: Ottla, partition: Path, path: str, message: str) -> None:
    result = ottla("log", "dump", str(partition / path))
    assert result.code == 1
    assert result.err.count("\n") == 1
    assert re.search(message, result.err)
