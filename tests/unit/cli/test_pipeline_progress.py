"""The progress of a pipeline: the board, the displays and the metrics."""

from __future__ import annotations

import io
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.pipeline.display import JsonLines, Lines, Silence, Table, summary
from ottla.spark.pipelines import ConsoleSink, Pipeline, Source
from ottla.spark.pipelines.limits import Counted, parse_limit
from ottla.spark.pipelines.metrics import MetricsError, render, serve, write_file
from ottla.spark.pipelines.progress import ENDED, FAILED, Board, batch_of
from ottla.spark.pipelines.stored_run import StoredRunError, save, stored_run

BEGIN = 1_700_000_000


def progress(
    batch: int = 0, rows: int = 100, *, end: int = 100, latest: int = 130, written: int = -1
) -> dict[str, Any]:
    return {
        "batchId": batch,
        "timestamp": "2023-11-14T22:13:20.000Z",
        "numInputRows": rows,
        "durationMs": {"triggerExecution": 500},
        "sources": [
            {"endOffset": {"orders": {"0": end}}, "latestOffset": {"orders": {"0": latest}}},
            {"endOffset": {"logOffset": 3}, "latestOffset": None},
        ],
        "sink": {"description": "FileSink", "numOutputRows": written},
    }


def test_a_batch_is_understood() -> None:
    batch = batch_of(progress(7))
    assert (batch.number, batch.rows, batch.written, batch.seconds, batch.lag) == (7, 100, None, 0.5, 30)
    assert (batch.at, batch.rows_per_second) == (BEGIN * 1000, 200.0)
    assert batch_of({**progress(), "sources": []}).lag is None
    text = {"endOffset": '{"orders": {"0": 5}}', "latestOffset": '{"orders": {"0": 12, "1": 3}}'}
    assert batch_of({**progress(), "sources": [text]}).lag == 10
    assert batch_of({**progress(), "sources": [{"endOffset": "x", "latestOffset": None}]}).lag is None


@pytest.fixture
def board() -> Board:
    found = Board("orders", ["table", "dead-letters.orders"], dead_letters={"dead-letters.orders"})
    # Spark may report a batch before its run id is known.
    found.progress("run-1", progress(0))
    found.started("run-1", "table")
    found.started("run-2", "dead-letters.orders")
    found.progress("run-1", progress(1, 40, end=140, latest=140))
    found.progress("run-2", progress(0, written=17))
    found.progress("run-2", progress(0, written=17))
    return found


def test_the_board_adds_up(board: Board) -> None:
    table, dead = board.flows()
    assert (table.batches, table.rows, table.lag, table.dead_letters, table.reported_written) == (2, 140, 0, None, None)
    assert (dead.batches, dead.dead_letters, board.dead_letters) == (1, 17, 17)
    assert [(flow.name, batch.number) for flow, batch in board.news()] == [
        ("table", 0),
        ("table", 1),
        ("dead-letters.orders", 0),
    ]
    assert board.news() == []


def test_a_terminal_gets_a_table_that_is_drawn_again_in_place(board: Board) -> None:
    stream, now = io.StringIO(), [BEGIN + 1.0]
    display = Table(stream, clock=lambda: now[0], width=lambda: 100)
    display.show(board)
    first = stream.getvalue()
    assert first.startswith("\x1b[Jorders: running, 0:00, 17 dead letters. Press Ctrl-C to stop.\n")
    lines = first.splitlines()
    assert lines[1].split() == ["FLOW", "BATCH", "ROWS", "ROWS/S", "LAG", "BATCH", "TIME", "DEAD", "LETTERS"]
    assert lines[2].split() == ["table", "1", "140", "80", "0", "0.50", "s", "-"]
    assert lines[3].split() == ["dead-letters.orders", "0", "100", "200", "30", "0.50", "s", "17"]
    display.show(board)
    assert stream.getvalue() == first, "it is not drawn too often"
    now[0] += 60
    board.ended("table", ENDED)
    board.ended("dead-letters.orders", FAILED)
    display.close(board)
    again = stream.getvalue()[len(first) :]
    assert again.startswith("\x1b[4F\x1b[Jorders: ended, 1:00, 17 dead letters.\n")
    assert again.splitlines()[2].split()[3] == "0", "an old rate is not the rate of now"


def test_a_narrow_terminal_does_not_wrap(board: Board) -> None:
    stream = io.StringIO()
    Table(stream, clock=lambda: 0.0, width=lambda: 30).show(board)
    assert max(len(line.replace("\x1b[J", "")) for line in stream.getvalue().splitlines()) == 29


def test_a_pipe_gets_lines(board: Board) -> None:
    stream, now = io.StringIO(), [0.0]
    display = Lines(stream, interval=10, clock=lambda: now[0])
    display.show(board)
    lines = [line.partition(" ")[2] for line in stream.getvalue().splitlines()]
    assert lines == [
        "table, batches 0 to 1: 140 rows in 1.00 s, 140 rows/s, lag 0",
        "dead-letters.orders, batch 0: 100 rows in 0.50 s, 200 rows/s, lag 30, 17 dead letters so far",
    ]
    board.progress("run-1", progress(2, 10))
    board.progress("run-1", progress(3, 0))
    now[0] = 5.0
    display.show(board)
    assert len(stream.getvalue().splitlines()) == 2, "not before the interval is over"
    display.close(board)
    assert stream.getvalue().splitlines()[2].endswith("table, batch 2: 10 rows in 0.50 s, 20 rows/s, lag 30")


def test_programs_get_json(board: Board) -> None:
    stream = io.StringIO()
    display = JsonLines(stream)
    display.show(board)
    display.tell("done", exit_code=0)
    first, *_, last = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert first == {
        "event": "progress",
        "pipeline": "orders",
        "flow": "table",
        "batch": 0,
        "timestamp": BEGIN * 1000,
        "rows": 100,
        "rows_per_second": 200.0,
        "lag": 30,
        "seconds": 0.5,
        "rows_total": 100,
        "dead_letters_total": None,
        "rules": {},
    }
    assert last == {"event": "done", "exit_code": 0}


def test_at_the_end_there_is_a_summary(board: Board) -> None:
    Silence().close(board)
    board.ended("table", ENDED)
    assert [line.split() for line in summary(board).splitlines()] == [
        ["FLOW", "STATE", "BATCHES", "ROWS", "LAG"],
        ["table", "ended", "2", "140", "0"],
        ["dead-letters.orders", "running", "1", "100", "30"],
        ["17", "dead", "letters"],
    ]


def test_metrics_in_the_form_of_prometheus(board: Board) -> None:
    page = render(board).splitlines()
    assert "# TYPE ottla_pipeline_rows_total counter" in page
    assert 'ottla_pipeline_rows_total{pipeline="orders",flow="table"} 140' in page
    assert 'ottla_pipeline_lag_records{pipeline="orders",flow="dead-letters.orders"} 30' in page
    assert 'ottla_pipeline_dead_letters_total{pipeline="orders",flow="dead-letters.orders"} 17' in page
    assert 'ottla_pipeline_batch_seconds{pipeline="orders",flow="table"} 0.5' in page
    assert f'ottla_pipeline_last_progress_timestamp_seconds{{pipeline="orders",flow="table"}} {BEGIN}.0' in page
    assert not [line for line in page if "written" in line and 'flow="table"' in line]
    odd = render(Board('a"b\\', ["x\ny"]))
    assert 'ottla_pipeline_up{pipeline="a\\"b\\\\",flow="x\\ny"} 1' in odd


def test_metrics_are_served_on_loopback(board: Board) -> None:
    with serve(lambda: render(board), 0) as server:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert answer.read().decode() == render(board)
        with pytest.raises(urllib.error.HTTPError, match="404") as wrong:
            urllib.request.urlopen(f"http://127.0.0.1:{server.port}/other")
        wrong.value.close()
        with pytest.raises(MetricsError, match=f"cannot serve metrics on port {server.port}: Address already"):
            serve(lambda: "", server.port)


def test_metrics_in_a_file(board: Board, tmp_path: Path) -> None:
    write_file(tmp_path / "ottla.prom", render(board))
    assert (tmp_path / "ottla.prom").read_text() == render(board)
    assert list(tmp_path.iterdir()) == [tmp_path / "ottla.prom"]
    with pytest.raises(MetricsError, match=r"cannot write metrics to .*: No such file or directory"):
        write_file(tmp_path / "nowhere" / "ottla.prom", "")


def test_sinks_that_share_a_query_have_its_batches() -> None:
    names = ["table", "out", "dead-letters.orders"]
    board = Board("orders", names, dead_letters={names[2]}, limits={names[2]: parse_limit(4)})
    observed = {"ottla_shared": {"broken": 5}, "ottla.rules.orders": {"all rows": 95, "positive": 2}}
    board.progress("run", {**progress(0), "observedMetrics": observed})
    board.started("run", *names)
    assert [(one.rows, one.lag, one.dead_letters) for one in board.flows()] == [(100, 30, None)] * 2 + [(100, 30, 5)]
    assert [(one.rule, one.flow) for one in board.rules()] == [
        (names[2], names[2]), ("positive", "out"), ("positive", "table")
    ]  # fmt: skip
    assert [one.rule for one in board.exceeded] == ["dead-letters.orders"]


@pytest.fixture
def ruled() -> Board:
    """Two batches in which rows broke a rule, and one row more than its limit."""
    found = Board("orders", ["table"], limits={"positive": parse_limit(4)})
    found.started("run-1", "table")
    for number, broken in enumerate((2, 0, 3)):
        observed = {"ottla.rules.orders": {"all rows": 100, "positive": broken, "named": 0}}
        found.progress("run-1", {**progress(number), "observedMetrics": observed})
    return found


def test_rules_are_shown_wherever_progress_is(ruled: Board) -> None:
    lines, table = io.StringIO(), io.StringIO()
    Table(table, clock=lambda: BEGIN, width=lambda: 100).close(ruled)
    Lines(lines).show(ruled)
    assert "lag 30, rule positive broken by 5 of 300 (1.7 %)\n" in lines.getvalue()
    assert "named" not in lines.getvalue(), "no row broke it"
    for text in (table.getvalue(), summary(ruled)):
        assert [line.split("  ")[0] for line in text.splitlines()[-3:]] == ["RULE", "named", "positive"]
        assert "table  5 of 300 (1.7 %)  3 of 100 (3 %)     4" in text


def test_rules_as_json_and_as_metrics(ruled: Board) -> None:
    stream = io.StringIO()
    JsonLines(stream).show(ruled)
    first = json.loads(stream.getvalue().splitlines()[0])
    assert first["rules"] == {
        "positive": {"rows": 100, "violations": 2},
        "named": {"rows": 100, "violations": 0},
    }
    text = render(ruled)
    labels = '{pipeline="orders",flow="table",rule="positive"}'
    assert f"ottla_pipeline_rule_rows_total{labels} 300\n" in text
    assert f"ottla_pipeline_rule_violations_total{labels} 5\n" in text
    assert f"ottla_pipeline_rule_last_batch_violations{labels} 3\n" in text
    assert f"ottla_pipeline_rule_limit_exceeded{labels} 1\n" in text


def test_counts_of_rules_in_a_shared_read_belong_to_their_batch_and_sink() -> None:
    board = Board("orders", ["table", "copies"], limits={"cheap": parse_limit(4)})
    board.started("run-1", "table", "copies")
    for number in range(2):
        board.counted("table", number, {"cheap": Counted(50, 3)})
        observed = {"ottla.rules.orders": {"all rows": 100, "positive": 1}}
        board.progress("run-1", {**progress(number), "observedMetrics": observed})
    assert [(flow.name, sorted(batch.rules)) for flow, batch in board.news()][:2] == [
        ("table", ["cheap", "positive"]),
        ("copies", ["positive"]),
    ]
    assert [(one.rule, one.flow, one.total) for one in board.rules()] == [
        ("cheap", "table", Counted(100, 6)),
        ("positive", "copies", Counted(200, 2)),
        ("positive", "table", Counted(200, 2)),
    ]
    assert [one.rule for one in board.exceeded] == ["cheap"]


def test_the_last_run_is_stored(board: Board, tmp_path: Path) -> None:
    source = Source(name="orders", topics=["orders"], format="json", schema="id BIGINT")
    pipeline = Pipeline(name="orders", checkpoint=str(tmp_path), sources=[source], sinks=[ConsoleSink(name="table")])
    assert stored_run(pipeline) is None
    board.progress("run-1", {**progress(2, 7), "eventTime": {"watermark": "2023-11-14T22:00:00.000Z"}})
    save(pipeline, board, started_at=1, now=2)
    found = stored_run(pipeline)
    assert found is not None
    assert (found.started_at, found.saved_at, found.ending) == (1, 2, None)
    table, letters = found.flows
    assert [(one.number, one.rows, one.lag) for one in table.recent] == [(0, 100, 30), (1, 40, 0), (2, 7, 30)]
    assert [one.watermark for one in table.recent] == [None, None, 1_699_999_200_000]
    assert (table.recent[0].seconds, table.recent[0].rows_per_second) == (0.5, 200.0)
    assert (letters.name, letters.writes_dead_letters, letters.written) == ("dead-letters.orders", True, 17)
    save(pipeline, board, started_at=1, now=3, ending="failed", cause="no such column")
    assert (end := stored_run(pipeline)) is not None
    assert (end.ending, end.cause) == ("failed", "no such column")
    (tmp_path / "progress.json").write_text('{"flows": [')
    with pytest.raises(StoredRunError, match=r"progress\.json is damaged; the next run replaces it"):
        stored_run(pipeline)


def test_a_watermark_before_the_first_records_is_unknown() -> None:
    assert batch_of({**progress(), "eventTime": {"watermark": "1970-01-01T00:00:00.000Z"}}).watermark is None
