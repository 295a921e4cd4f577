"""`ottla pipeline test` as far as it needs no Spark: problems are told before it starts."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

import pytest

from ottla.cli.main import main
from ottla.cli.pipeline import test as command

PIPELINE = """\
name = "orders"
checkpoint = "state"

[[source]]
name = "orders"
topics = ["orders"]
schema = "id BIGINT"

[[sink]]
name = "table"
format = "parquet"
path = "out"
"""


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def start(*_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("ottla.testing.pipelines.running.session", start)
    monkeypatch.chdir(tmp_path)


def test_pipelines_without_tests_and_missing_files(capsys: pytest.CaptureFixture[str]) -> None:
    Path("orders.toml").write_text(PIPELINE)
    assert main(["pipeline", "test", "orders.toml", "other.toml"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "orders.toml has no tests: write the first one as orders.tests/NAME.toml",
        "other.toml: file not found",
    ]


def test_problems_of_pipelines_and_cases(capsys: pytest.CaptureFixture[str]) -> None:
    Path("orders.tests").mkdir()
    Path("orders.toml").write_text(PIPELINE)
    Path("orders.tests/one.toml").write_text("[[batch]]\norders = []\n[expected]\ntabel = []\n")
    assert main(["pipeline", "test", "orders.toml", "--json"]) == 2
    told = json.loads(capsys.readouterr().out)
    assert told == {
        "cases": [],
        "problems": ["orders.tests/one.toml:4: orders.toml has no sink tabel. Did you mean table?"],
    }
    Path("orders.tests/two.toml").write_text("[[batch]]\norders = []\n[expected]\ntable = []\n")
    Path("orders.toml").write_text(PIPELINE.replace("BIGINT", "BIGNT"))
    assert main(["pipeline", "test", "orders.toml"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("orders.toml:7: schema: column id has the unknown type bignt.")


def test_a_watch_has_no_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "test", "orders.toml", "--watch", "--json"]) == 2
    assert "--watch and --json cannot be combined" in capsys.readouterr().err


def test_a_watch_waits_for_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "LOOK_SECONDS", 0.02)
    Path("orders.tests").mkdir()
    case = Path("orders.tests/one.toml")
    read, write = os.pipe()
    with os.fdopen(read) as stdin, os.fdopen(write, "w") as keys:
        monkeypatch.setattr("sys.stdin", stdin)
        for change in (
            lambda: case.write_text("a"),
            lambda: os.utime(case, ns=(1, 1)),
            lambda: Path("tidying.py").write_text(""),
            lambda: (keys.write("\n"), keys.flush()),
            case.unlink,
        ):
            before = command._state([Path("orders.toml")])
            waiting = threading.Thread(
                target=command._wait_for_change, args=([Path("orders.toml")], before), daemon=True
            )
            waiting.start()
            Path("orders.svg").write_text(str(time.monotonic()))  # not watched
            change()
            waiting.join(20)
            assert not waiting.is_alive()
