"""The pages of pipelines without a broker: states, rates, reasons of dead letters, files and jobs."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.console.pipelines import Jobs, Pipelines, facts_of
from ottla.console.views.pipelines import by_reason, charts, general, shown, waiting_letters
from ottla.console.views.records import Row
from ottla.errors import OttlaError
from ottla.spark.pipelines.checkpoints import Checkpoint
from ottla.spark.pipelines.run_lock import Holder
from ottla.spark.pipelines.status import FlowStatus, Status, TopicStatus
from ottla.spark.pipelines.stored_run import StoredBatch, StoredFlow, StoredRun

NOW = 1_700_000_000_000
TOML = """\
name = "orders"
checkpoint = "state"
[[source]]
name = "orders"
topics = ["orders"]
schema = "id BIGINT"
[[sink]]
name = "table"
format = "parquet"
path = "table"
"""


def status(lag: int = 0, *, finished: int = NOW - 1_000, running: bool = True) -> Status:
    flow = FlowStatus("table", "state", Checkpoint(5, finished, {}), (TopicStatus("orders", lag),))
    return Status("orders", Holder(1, "here", NOW) if running else None, (flow,))


def run(*batches: StoredBatch, ending: str | None = None, cause: str | None = None) -> StoredRun:
    flow = StoredFlow("table", "running", len(batches), 10, None, recent=batches)
    return StoredRun(NOW - 60_000, NOW, (flow,), ending, cause)


def batch(number: int, *, at: int = NOW - 2_000, seconds: float = 0.5) -> StoredBatch:
    return StoredBatch(number, 100, None, seconds, 3, at, NOW - 9_000)


def test_a_running_pipeline_has_rates_and_lag() -> None:
    found = shown(status(lag=40), run(batch(4), batch(5)), now=NOW)
    assert (found.state, found.mark, found.rate, found.lag) == ("running", "good", 200.0, 40)
    assert found.last_batch == NOW - 1_000
    # A rate is not kept for ever.
    assert shown(status(), run(batch(5, at=NOW - 60_000)), now=NOW).rate == 0


def test_a_pipeline_stalls_if_records_wait_and_no_batch_ends() -> None:
    late = status(lag=1, finished=NOW - 61_000)
    assert shown(late, run(batch(5)), now=NOW).state == "stalled"
    assert shown(status(lag=0, finished=NOW - 61_000), run(batch(5)), now=NOW).state == "running"
    # Long batches are no reason to worry.
    assert shown(late, run(batch(5, seconds=30)), now=NOW).state == "running"
    # A batch that has just begun is progress, too.
    (flow,) = late.flows
    assert flow.checkpoint is not None
    busy = replace(flow, checkpoint=replace(flow.checkpoint, unfinished=6, unfinished_since=NOW - 5_000))
    assert shown(replace(late, flows=(busy,)), run(batch(5)), now=NOW).state == "running"


@pytest.mark.parametrize(
    ("ending", "state", "detail"),
    [("done", "stopped", "all records were processed"), ("failed", "failed", "no such column"), (None, "crashed", "")],
)
def test_how_a_run_ended(ending: str | None, state: str, detail: str) -> None:
    found = shown(status(running=False), run(batch(5), ending=ending, cause="no such column"), now=NOW)
    assert found.state == state
    assert detail in found.detail


def test_a_pipeline_that_never_ran() -> None:
    flow = FlowStatus("table", "state", None)
    found = shown(Status("orders", None, (flow,)), None, now=NOW)
    assert (found.state, found.rate, found.lag, found.last_batch) == ("never ran", None, None, None)
    assert charts(None) == []
    assert len(charts(run(batch(1, at=NOW), batch(2, at=NOW + 1_000)))) == 2


def letter(offset: int, message: str) -> Row:
    headers = {
        "topic": "orders",
        "partition": "1",
        "offset": str(offset),
        "error-class": "Broken",
        "error-message": message,
    }
    named = tuple((f"dead-letter-{name}", value.encode()) for name, value in headers.items())
    return Row(0, offset, NOW + offset, False, b"k", b"{", named, 1)


def test_dead_letters_by_reason() -> None:
    rows = [letter(1, "total: 'abc' is not a number"), letter(2, "the value is not UTF-8 text: byte 3 is 0xff")]
    rows += [letter(3, "total: 'x y' is not a number"), Row(0, 9, NOW, False, None, b"no letter", (), 9)]
    most, other = by_reason(waiting_letters(rows, "orders.dead"))
    assert (most.text, most.count, most.newest.offset) == ("Broken: total: … is not a number", 2, 3)
    assert most.newest.letter.topic == "orders"
    assert (other.count, other.text) == (1, "Broken: the value is not UTF-8 text: byte … is …")
    for row in rows[:3:2]:
        ((one, _),) = waiting_letters([row], "orders.dead")
        assert most.search.lower() in one.error.lower()
    assert general("no numbers") == "no numbers"


def test_files_and_directories_are_read_again_after_a_change(tmp_path: Path) -> None:
    file = tmp_path / "orders.toml"
    file.write_text(TOML)
    (tmp_path / "broken.toml").write_text('name = "broken"')
    (tmp_path / "notes.txt").write_text("")
    pipelines = Pipelines([tmp_path, file], "localhost:9092", {"security.protocol": "PLAINTEXT"})
    broken, orders = pipelines.files()
    assert (broken.pipeline, len(broken.problems) > 0) == (None, True)
    assert orders.pipeline is not None
    assert (orders.pipeline.bootstrap_servers, orders.is_of_console) == ("localhost:9092", True)
    assert orders.pipeline.kafka == {"security.protocol": "PLAINTEXT"}
    file.write_text(f'bootstrap_servers = "other:9092"\n{TOML}')
    changed = pipelines.find("orders")
    assert changed is not None
    assert changed.pipeline is not None
    assert (changed.pipeline.bootstrap_servers, changed.is_of_console, changed.pipeline.kafka) == (
        "other:9092",
        False,
        {},
    )
    assert pipelines.find("nobody") is None


def test_every_file_has_a_key_of_its_own(tmp_path: Path) -> None:
    paths = [tmp_path / "a" / "orders.toml", tmp_path / "b" / "orders.toml", tmp_path / "c" / "orders-2.toml"]
    for path in paths:
        path.parent.mkdir()
        path.write_text(TOML)
    found = {one.key: one.path for one in Pipelines(paths, "localhost:9092", {}).files()}
    assert found == {"orders": paths[0], "orders-2": paths[1], "orders-2-2": paths[2]}


def test_damaged_files_are_told(tmp_path: Path) -> None:
    file = tmp_path / "orders.toml"
    file.write_text(TOML)
    (found,) = Pipelines([file], "localhost:9092", {}).files()
    assert found.pipeline is not None
    assert facts_of(found.pipeline, ask=False).problems == ()
    (tmp_path / "state").mkdir()
    for name in ("progress.json", "audit.json"):
        (tmp_path / "state" / name).write_text("{")
    problems = facts_of(found.pipeline, ask=False).problems
    assert [any(name in text for text in problems) for name in ("progress.json", "audit.json")] == [True, True]


def test_one_job_of_a_kind_at_a_time() -> None:
    jobs = Jobs()
    job = jobs.start("orders", "audit", "audit of orders", ["nonsense"])
    with pytest.raises(OttlaError, match="audit of orders runs already: wait for its end"):
        jobs.start("orders", "audit", "audit of orders", [])
    deadline = time.monotonic() + 20
    while job.code is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert job.code == 2
    assert any("unknown command" in line for line in job.lines)
    assert jobs.of("orders", "audit") is job
    jobs.close()
