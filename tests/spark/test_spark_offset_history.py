"""The history of `__consumer_offsets` on a real Spark: every commit is in the table once."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import ottla
from compat.waiting import until
from ottla.cli import main as cli
from ottla.spark.offset_history import HistoryError, OffsetHistory, offset_history
from ottla.types import TopicPartition
from spark.conftest import Topics

pytestmark = pytest.mark.spark

STEP_MS = 40


@pytest.fixture(scope="module")
def used(topics: Topics) -> tuple[str, str]:
    """A topic and a group that reads some of it, then more, then all."""
    topic, group = topics.make(2), f"history-{uuid4().hex[:8]}"
    topics.fill(topic, 10)
    for protocol, wanted in (("classic", 4), ("consumer", 3)):
        name = group if protocol == "classic" else f"{group}-new"
        with ottla.Consumer(
            bootstrap_servers=topics.servers,
            group_id=name,
            group_protocol=protocol,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=wanted,
            client_id="reader",
        ) as consumer:
            consumer.subscribe([topic])
            while not consumer.poll(1):
                pass
            consumer.commit()
    pause()
    topics.admin.alter_group_offsets(group, {TopicPartition(topic, 0): ottla.OffsetAndMetadata(7, metadata="by hand")})
    pause()
    topics.fill(topic, 5, first=10)
    topics.admin.alter_group_offsets(group, {TopicPartition(topic, 0): 15, TopicPartition(topic, 1): 0})
    topics.admin.delete_group_offsets(group, [TopicPartition(topic, 1)])
    return topic, group


def pause() -> None:
    """Wait so that earlier and later commits have different time slots."""
    start = time.monotonic()
    until(lambda: time.monotonic() - start > 3 * STEP_MS / 1000, "time goes by")


def test_what_groups_did_is_in_the_table(
    topics: Topics, used: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    topic, group = used
    monkeypatch.setattr(type(topics.spark), "stop", lambda spark: None)
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", topics.servers)
    out, chart = str(tmp_path / "history"), tmp_path / "lag.svg"
    assert cli.main(["offsets", "history", "--out", out]) == 0
    assert group in capsys.readouterr().out
    # The second run continues where the first one stopped.
    step = ["--step", f"{STEP_MS / 1000}s", "--chart", str(chart), "--json"]
    assert cli.main(["offsets", "history", "--out", out, "--group", group, *step]) == 0
    rows = [row for row in json.loads(capsys.readouterr().out) if row["partition"] == 0]
    seen = list(dict.fromkeys((row["committed"], row["log_end"], row["lag"]) for row in rows))
    assert seen[0] == (4, 10, 6)
    assert (7, 10, 3) in seen
    assert seen[-1] == (15, 15, 0)
    assert topic in chart.read_text()
    kept = offset_history(topics.spark, path=out, bootstrap_servers=topics.servers)
    check_commits(kept, topic, group)
    check_groups(kept, topic, group)
    assert kept.lag("nobody").collect() == []


def check_commits(history: OffsetHistory, topic: str, group: str) -> None:
    mine = history.commits.where(f"group_id = '{group}'").orderBy("log_offset").collect()
    commits = [(row["partition"], row["offset"], row["metadata"], row["deleted"]) for row in mine]
    first = [(0, 4, "", False), (0, 7, "by hand", False), (0, 15, "", False)]
    assert [one for one in commits if one[0] == 0] == first
    assert commits[-1] == (1, None, None, True)
    assert {row["topic"] for row in mine} == {topic}
    told = {row["group_id"]: row for row in history.groups().collect()}
    assert (told[group]["commits"], told[group]["partitions"]) == (len(mine) - 1, 2)


def check_groups(history: OffsetHistory, topic: str, group: str) -> None:
    members = history.members.where("client_id = 'reader'").collect()
    classic = next(row for row in members if row["group_id"] == group)
    assert (classic["subscribed"], classic["generation"]) == ([topic], 1)
    assert [(one["topic"], one["partitions"]) for one in classic["assigned"]] == [(topic, [0, 1])]
    assert {row["group_id"] for row in members} == {group, f"{group}-new"}
    generations = history.generations.where(f"group_id = '{group}'").collect()
    assert (1, 1, "range") in {(row["generation"], row["members"], row["protocol"]) for row in generations}


@pytest.mark.long
def test_the_topic_itself_and_mistakes(topics: Topics, used: tuple[str, str], tmp_path: Path) -> None:
    topic, group = used
    check_commits(offset_history(topics.spark, bootstrap_servers=topics.servers), topic, group)
    assert cli.main(["offsets", "history", "--out", str(tmp_path), "--chart", "lag.svg"]) == 2
    with pytest.raises(HistoryError, match="has no history"):
        offset_history(topics.spark, path=str(tmp_path / "nowhere"))


@pytest.mark.long
def test_the_programs_of_the_page_run(topics: Topics) -> None:
    page = Path(__file__).parents[2] / "docs" / "audit.md"
    blocks = re.findall(r"<!-- runs -->\n```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block.replace("localhost:9092", topics.servers), "block", "exec"), {})
