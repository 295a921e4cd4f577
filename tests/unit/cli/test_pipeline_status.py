"""``ottla pipeline check`` and ``status``: what works without Spark."""

from __future__ import annotations

import json
import os
from pathlib import Path
from uuid import uuid4

import pytest
from tests.unit.cli.cli_results import Ottla

import ottla as public
from ottla.cli.main import main
from ottla.cli.pipeline.status import as_text
from ottla.clients.admin.blocking import Admin
from ottla.spark.pipelines import exit_codes, load
from ottla.spark.pipelines.checkpoints import Checkpoint, CheckpointError, read_checkpoint
from ottla.spark.pipelines.progress import Board
from ottla.spark.pipelines.rule_counts import save
from ottla.spark.pipelines.rules import limits_of
from ottla.spark.pipelines.run_lock import run_lock
from ottla.spark.pipelines.status import DeadLetterStatus, FlowStatus, Status, TopicStatus
from ottla.types import TopicPartition

CONF = '{"batchWatermarkMs":0,"batchTimestampMs":1794793570863,"conf":{"spark.sql.shuffle.partitions":"2"}}'
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
path = "table"

[[sink]]
name = "look"
format = "console"

[dead_letters]
topic = "{topic}.dead"
"""


def planned(directory: Path, batch: int, *sources: str, finished: bool = True) -> None:
    """Write the checkpoint files of a batch."""
    for name in ("offsets", "commits"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    (directory / "offsets" / str(batch)).write_text("\n".join(["v1", CONF, *sources]))
    (directory / "offsets" / f".{batch}.crc").write_bytes(b"crc")
    if finished:
        (directory / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


# ── Checkpoints ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_checkpoint_is_read(tmp_path: Path) -> None:
    assert read_checkpoint(tmp_path) is None
    planned(tmp_path, 0, '{"orders": {"0": 5}}', finished=False)
    assert read_checkpoint(tmp_path) == Checkpoint(unfinished=0, unfinished_since=1794793570863)
    planned(tmp_path, 0, '{"orders": {"0": 5}}')
    planned(tmp_path, 10, '{"orders": {"0": 9, "1": 3}}', '{"logOffset":0}', "-", '{"users": {"0": 1}}')
    planned(tmp_path, 9, '{"orders": {"0": 7}}')
    found = read_checkpoint(tmp_path)
    assert found is not None
    assert (found.finished, found.unfinished) == (10, None)
    assert {str(key): offset for key, offset in found.offsets.items()} == {"orders-0": 9, "orders-1": 3, "users-0": 1}
    planned(tmp_path, 11, '{"orders": {"0": 12}}', finished=False)
    found = read_checkpoint(tmp_path)
    assert found is not None
    assert (found.finished, found.unfinished, found.offsets[TopicPartition("orders", 0)]) == (10, 11, 9)


def test_a_damaged_checkpoint_is_told(tmp_path: Path) -> None:
    planned(tmp_path, 0)
    (tmp_path / "offsets" / "0").write_text("")
    with pytest.raises(CheckpointError, match=r"offsets/0 is damaged"):
        read_checkpoint(tmp_path)
    (tmp_path / "offsets" / "0").write_text("nonsense\nmore")
    with pytest.raises(CheckpointError, match="it starts with 'nonsense'"):
        read_checkpoint(tmp_path)


# ── status ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def declared(tmp_path: Path) -> tuple[Path, str]:
    """A declaration, and the topic of its source."""
    name = f"orders-{uuid4().hex[:8]}"
    file = tmp_path / "orders.toml"
    file.write_text(DECLARED.replace("TOPIC", name))
    return file, name


def test_status_from_checkpoints_groups_and_logs(ottla: Ottla, bootstrap: str, declared: tuple[Path, str]) -> None:
    file, topic = declared
    never = ottla("pipeline", "status", str(file))
    assert never.code == 0, never.err
    assert never.lines[0] == "orders is not running"
    assert [line.split()[:4] for line in never.lines[2:5]] == [
        ["table", "-", "never", "ran"],
        ["look", "-", "never", "ran"],
        ["dead-letters.orders", "-", "never", "ran"],
    ]
    assert never.lines[-1] == f"{topic}.dead: no dead letters, the topic does not exist yet"
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([public.NewTopic(topic, 2), public.NewTopic(f"{topic}.dead", 1)])
        with public.Producer(bootstrap_servers=bootstrap) as producer:
            for number in range(10):
                producer.send(topic, b"x", partition=number % 2)
            headers = [("dead-letter-topic", topic.encode())]
            producer.send(f"{topic}.dead", b"x", headers=headers)
        admin.alter_group_offsets(f"{topic}-group", {TopicPartition(topic, 0): 2, TopicPartition(topic, 1): 2})
    state = file.parent / "state"
    planned(state / "table", 3, json.dumps({topic: {"0": 4}}))
    planned(state / "dead-letters" / "orders", 1, json.dumps({topic: {"0": 5, "1": 5}}))
    os.utime(state / "table" / "commits" / "3", (1_700_000_000, 1_700_000_000))
    with run_lock(str(state)):
        shown = ottla("pipeline", "status", str(file))
        told = json.loads(ottla("pipeline", "status", str(file), "--json").out)
    assert shown.lines[0].startswith(f"orders is running: process {os.getpid()} on ")
    row = shown.lines[2].split()
    assert (row[:2], row[-4:]) == (["table", "3"], [topic, "6", f"{topic}-group", "6"])
    assert shown.lines[4].split()[-4:] == [topic, "0", f"{topic}-group.dead-letters.orders", "-"]
    assert shown.lines[-1] == f"{topic}.dead: 1 dead letter waits: replay with `ottla pipeline replay {file}`"
    table, look, dead = told["flows"]
    assert (table["finished_batch"], table["finished_at"], table["lag"]) == (3, 1_700_000_000_000, 6)
    assert (look["finished_batch"], dead["lag"], told["running"]["pid"]) == (None, 0, os.getpid())
    assert told["dead_letters"] == [{"topic": f"{topic}.dead", "waiting": 1, "exact": True}]


def test_status_without_a_broker(
    tmp_path: Path, ottla: Ottla, declared: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, topic = declared
    planned(file.parent / "state" / "table", 3, json.dumps({topic: {"0": 4}}))
    monkeypatch.setattr("ottla.spark.pipelines.status.ASK_MS", 300)
    unreachable = ("-b", "127.0.0.1:1")
    offline = ottla("pipeline", "status", str(file), "--offline", *unreachable)
    assert (offline.code, offline.err) == (0, "")
    assert offline.lines[2].split()[:2] == ["table", "3"]
    (file.parent / "state" / "table" / "offsets" / "3").write_text("?")
    damaged = ottla("pipeline", "status", str(file), "--offline", *unreachable)
    assert (damaged.code, "offsets/3 is damaged" in damaged.err) == (1, True)


def test_an_exceeded_limit_is_in_the_status_and_refuses_the_next_run(ottla: Ottla, declared: tuple[Path, str]) -> None:
    """A scheduler that retries must not see success."""
    file, _ = declared
    rule = '[[expect]]\nname = "positive"\nthat = "id >= 0"\nat_most = "1%"\n'
    file.write_text(file.read_text() + rule)
    pipeline = load(file, bootstrap_servers="localhost:1")
    (file.parent / "state").mkdir()
    board = Board("orders", ["table"], limits=limits_of(pipeline))
    board.started("run", "table")
    observed = {"ottla.rules.orders": {"all rows": 2_000, "positive": 30}}
    board.progress("run", {"batchId": 0, "timestamp": "2023-11-14T22:13:20.000Z", "observedMetrics": observed})
    save(pipeline, board)
    broken = "rule positive: 30 of 2,000 (1.5 %) rows of flow table broke it, at_most is 1%"

    shown = ottla("pipeline", "status", str(file), "--offline")
    assert shown.lines[-1] == f"limit exceeded: {broken}"
    assert shown.lines[-2].split("  ") == ["positive", "table", *["30 of 2,000 (1.5 %)"] * 2, "1%"]
    told = json.loads(ottla("pipeline", "status", str(file), "--offline", "--json").out)
    assert told["limits_exceeded"] == [broken]
    assert told["rules"][0] | {"rule": "positive", "violations": 30, "limit_exceeded": True} == told["rules"][0]

    for _ in range(2):
        refused = ottla("pipeline", "run", str(file), "--once")
        assert refused.code == exit_codes.LIMIT_EXCEEDED
        assert refused.err.splitlines() == [
            f"ottla: error: an earlier run exceeded a limit: {broken}",
            "ottla: the pipeline was not started. Change the limit, the rule, the steps or the schema, or accept what "
            "happened with --accept-limits",
        ]
    assert json.loads(ottla("pipeline", "run", str(file), "--once", "--json").out)["exit_code"] == 4


def test_times_are_told_as_people_do() -> None:
    flow = FlowStatus(
        "table", "state/table", Checkpoint(7, 1_000, {}, unfinished=8), (TopicStatus("a", 1), TopicStatus("b", None))
    )
    dead = (DeadLetterStatus("a.dead", 25_000, exact=False), DeadLetterStatus("b.dead", 0))
    text = as_text(Status("orders", None, (flow,), dead), now=61_000, file="f.toml").splitlines()
    assert "1 min ago (batch 8 is not finished)" in text[2]
    assert text[3].split() == ["b", "-", "-", "-"]
    assert text[4:] == [
        "a.dead: about 25,000 dead letters wait: replay with `ottla pipeline replay f.toml`",
        "b.dead: 0 dead letters wait",
    ]
    assert flow.lag == 1


# ── check ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_check_tells_all_problems_with_their_lines(ottla: Ottla, declared: tuple[Path, str]) -> None:
    file, _ = declared
    right = ottla("pipeline", "check", str(file))
    assert right.code == 0, right.err
    assert right.lines[0] == f"{file} is valid: 1 source, 2 sinks"
    text = file.read_text().replace('format = "console"', 'format = "consol"').replace("name = ", "nmae = ", 1)
    file.write_text(text)
    wrong = ottla("pipeline", "check", str(file))
    assert wrong.code == 2
    assert wrong.out == b""
    numbers = [int(line.split(":")[1]) for line in wrong.err.splitlines()[:-1]]
    assert {1, 17} <= set(numbers)
    assert wrong.err.splitlines()[-1] == f"{file}: {len(numbers)} problems"
    told = json.loads(ottla("pipeline", "check", str(file), "--json").out)
    assert len(told["problems"]) == len(numbers)
    assert all(problem["file"] == str(file) for problem in told["problems"])


def test_check_asks_the_broker_if_told_to(ottla: Ottla, declared: tuple[Path, str]) -> None:
    file, topic = declared
    missing = ottla("pipeline", "check", str(file), "--connect")
    assert missing.code == 2
    assert missing.err.startswith(f"{file}:6: source orders: topic {topic} does not exist on the broker")
    assert ottla("topics", "create", topic + "2", "--partitions", "1").code == 0
    near = ottla("pipeline", "check", str(file), "--connect")
    assert f"topic {topic} does not exist on the broker; did you mean '{topic}2'?" in near.err
    assert ottla("topics", "create", topic, "--partitions", "1").code == 0
    there = ottla("pipeline", "check", str(file), "--connect")
    assert there.code == 0
    assert there.lines[-1].startswith(f"note: dead letters: topic {topic}.dead does not exist yet")


def test_other_actions_refuse_a_wrong_declaration_in_the_same_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text("name = \n[[source]]\n")
    for action in ("run", "status", "replay"):
        assert main(["pipeline", action, str(file)]) == 2
        assert capsys.readouterr().err.startswith(f"{file}:1: ")
    assert main(["pipeline", "run", str(tmp_path / "none.toml")]) == 2
    assert "file not found" in capsys.readouterr().err
