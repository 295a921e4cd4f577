"""`ottla sql` on a real Spark."""

from __future__ import annotations

import json

import pytest

from ottla.cli import main as cli
from spark.conftest import Topics

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def own_session(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the session of the tests, without stopping it."""
    monkeypatch.setattr(type(topics.spark), "stop", lambda spark: None)
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", topics.servers)


def test_topics_are_tables(topics: Topics, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = topics.make(2), topics.make(name="with-dots.and.dashes")
    topics.fill(first, 3, key=b"k")
    topics.fill(second, 2, partition=0, first=1)
    query = f"SELECT a.value, b.offset FROM `{first}` a JOIN `{second}` b ON a.value = b.value ORDER BY 1"
    assert cli.main(["sql", query, "--json"]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"value": "1", "offset": 0},
        {"value": "2", "offset": 1},
    ]
    assert cli.main(["sql", f"SELECT key, partition, value FROM `{first}` ORDER BY value", "--limit", "2"]) == 0
    assert capsys.readouterr().out.splitlines() == ["key  partition  value", "k            0  0", "k            0  1"]


def test_mistakes_are_one_line(topics: Topics, capsys: pytest.CaptureFixture[str]) -> None:
    topic = topics.make()
    assert cli.main(["sql", "SELECT * FROM nowhere"]) == 1
    assert "nowhere` cannot be found" in capsys.readouterr().err
    assert cli.main(["sql", f"SELECT * FROM `{topic}`", "--option", "endingOffset=latest"]) == 1
    assert capsys.readouterr().err == "ottla: error: unknown option endingoffset. Did you mean endingOffsets?\n"
