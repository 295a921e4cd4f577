"""What is told about a running pipeline, where it goes, and the checks of [events] and [lineage]."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from ottla.errors import OttlaError
from ottla.exporter.delivery import DeliveryThread, NotTaken, Places
from ottla.monitoring.alarms import Event, Subject
from ottla.spark.pipelines import Events, Lineage, Pipeline, load
from ottla.spark.pipelines.declaration import DeclarationError
from ottla.spark.pipelines.failures import Failure
from ottla.spark.pipelines.lineage.reporting import client_of
from ottla.spark.pipelines.metrics import render
from ottla.spark.pipelines.monitor import Monitor
from ottla.spark.pipelines.progress import Board
from ottla.spark.pipelines.runner import Ending
from ottla.spark.pipelines.watching import PipelineWatch

TIME = "2023-11-14T22:13:20.000Z"
DECLARED = """\
name = "shop"
checkpoint = "state"
bootstrap_servers = "localhost:9092"

[[source]]
name = "orders"
topics = ["orders"]
format = "text"

[[sink]]
name = "table"
path = "table"
format = "parquet"
"""


def a_board() -> Board:
    board = Board("shop", ["table", "dead-letters.orders"], dead_letters=["dead-letters.orders"])
    board.started("run", "table", "dead-letters.orders")
    return board


def letters(board: Board, batch: int, count: int) -> None:
    progress = {"batchId": batch, "timestamp": TIME, "numInputRows": 100, "sink": {"numOutputRows": count}}
    board.progress("run", progress)


def test_a_flow_that_works_without_an_end_stalls_once_until_it_goes_on() -> None:
    board, watch = a_board(), PipelineWatch("shop", Events(log="x", stalled="10 seconds", repeat="1 minute"))

    def told(now: int) -> list[tuple[str, str]]:
        return [(one.subject.name, one.status) for one in watch.observe(board, now=now)]

    assert told(0) == []
    board.alive("run", now=1_000)
    assert told(11_000) == []
    assert told(11_001) == [("shop/table", "began"), ("shop/dead-letters.orders", "began")]
    assert told(20_000) == []
    assert told(71_001) == [("shop/table", "lasts"), ("shop/dead-letters.orders", "lasts")]
    board.alive("run", now=72_000)
    assert told(72_001) == [("shop/table", "over"), ("shop/dead-letters.orders", "over")]
    assert 'ottla_pipeline_alive_timestamp_seconds{pipeline="shop",flow="table"} 72' in render(board)


def test_dead_letters_are_told_at_once_and_then_together() -> None:
    board, watch = a_board(), PipelineWatch("shop", Events(log="x"))

    def told(now: int) -> list[tuple[str, int, int]]:
        return [(one.subject.name, one.count, one.details["total"]) for one in watch.observe(board, now=now)]

    assert told(0) == []
    letters(board, 0, 3)
    assert told(1_000) == [("shop/orders", 3, 3)]
    for batch in (1, 2):
        letters(board, batch, 2)
        assert told(2_000) == []
    assert told(61_000) == [("shop/orders", 4, 7)]
    letters(board, 3, 1)
    assert told(62_000) == []
    last = watch.ended(0, "done", now=63_000)
    assert [(one.subject.kind, one.count) for one in last] == [("dead_letters", 1)]


def test_the_end_of_a_run_is_told_unless_it_is_done(tmp_path: Path) -> None:
    pipeline = Pipeline(
        name="shop", checkpoint="state", sources=[], sinks=[], events=Events(log=str(tmp_path / "events.jsonl"))
    )
    for ending in (
        Ending(),
        Ending(Failure("table", "the disk is full", "orders-0 from offset 3 to 9")),
        Ending(signal=15),
    ):
        with Monitor(pipeline) as monitor:
            monitor.ended(a_board(), ending)
    with Monitor(pipeline) as monitor:
        monitor.failed(OttlaError("could not start Spark"))
    found = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [(one["event"], one["ended"], one["exit_code"], one["reason"]) for one in found] == [
        ("pipeline_stopped", "failed", 1, "the disk is full"),
        ("pipeline_stopped", "stopped", 143, "signal 15"),
        ("pipeline_stopped", "failed", 1, "could not start Spark"),
    ]
    assert found[0]["flow"] == "table"
    assert found[0]["reading"] == "orders-0 from offset 3 to 9"


def test_a_webhook_that_is_away_for_a_while_gets_the_event(tmp_path: Path) -> None:
    taken: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(503 if not taken else 200)
            self.end_headers()
            taken.append(body)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/alerts"
        pipeline = Pipeline(name="shop", checkpoint="s", sources=[], sinks=[], events=Events(webhook=url))
        with Monitor(pipeline) as monitor:
            monitor.ended(a_board(), Ending(signal=15))
    finally:
        server.shutdown()
        server.server_close()
    assert len(taken) == 2
    assert taken[0] == taken[1]


def test_an_outlet_that_hangs_or_raises_does_not_keep_the_end_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.exporter.delivery.LAST_CHANCE", 0.05)
    release, hangs, refuses = threading.Event(), threading.Event(), threading.Event()

    def hang(_event: str) -> None:
        hangs.set()
        release.wait(30)

    def refuse(_event: str) -> None:
        refuses.set()
        raise NotTaken("down")

    with DeliveryThread(Places(), {}) as thread:
        put = thread.outlet("slow", hang)
        again = thread.outlet("down", refuse)
        put("one")
        again("two")
        assert hangs.wait(30)
        assert refuses.wait(30)
    assert not release.is_set()
    release.set()


def test_a_broker_that_is_away_does_not_keep_the_end_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.exporter.delivery.LAST_CHANCE", 0.2)
    config = {"bootstrap.servers": "127.0.0.1:1"}
    event = Event(Subject("pipeline_stopped", "shop"), "happened", 0, {})
    before = time.monotonic()
    with DeliveryThread(Places(topic="events"), config) as thread:
        thread.put(event)
    assert time.monotonic() - before < 20, "delivery.timeout.ms is two minutes"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("[events]", "shop.toml:14: events need a place: set webhook, log or topic"),
        ('[events]\nwebhook = "alerts.example.com"', "webhook must be an address such as"),
        ('[events]\nwebhook = "${env:NOT_SET_HERE}"', "the environment variable NOT_SET_HERE is not set"),
        ('[events]\ntopic = "a/b"', "topic: 'a/b' "),
        ('[events]\nlog = "x"\nstalled = "soon"', "stalled must be a duration such as"),
        ('[events]\nlogs = "x"', "[events] has no key logs. Did you mean log?"),
        ('events = "x"', "events is a table: write [events] and webhook = … below it"),
        ('[lineage]\ntransport = {url = "http://x"}', "transport needs a type"),
    ],
)
def test_wrong_declarations(tmp_path: Path, more: str, message: str) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(f"{more}\n{DECLARED}" if more.startswith("events") else f"{DECLARED}{more}\n")
    with pytest.raises(DeclarationError) as raised:
        load(str(file))
    assert message in str(raised.value)


def test_openlineage_without_a_usable_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(OttlaError, match=r"OpenLineage is not configured: set transport.*or OPENLINEAGE_URL"):
        client_of(Lineage())
    with pytest.raises(OttlaError, match=r"OpenLineage does not accept the transport: .*log_file_path"):
        client_of(Lineage(transport={"type": "file"}))
    with pytest.raises(OttlaError, match="OpenLineage does not accept the transport"):
        client_of(Lineage(transport={"type": "pigeon"}))
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
    assert client_of(Lineage()).transport.kind == "noop"
