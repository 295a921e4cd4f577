"""A pipeline that has run, without Spark: the files of its checkpoint, its dead letters, and an audit."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from ottla import Admin, Broker, NewTopic, Producer
from ottla.clients.consumer.dead_letter_steps import PREFIX
from ottla.spark.pipelines.audit.stored import StoredAudit
from ottla.spark.pipelines.audit.stored import save as save_audit
from ottla.spark.pipelines.declaration import Pipeline
from ottla.spark.pipelines.limits import Counted
from ottla.spark.pipelines.loading import load
from ottla.spark.pipelines.progress import Board
from ottla.spark.pipelines.rule_counts import save as save_rules
from ottla.spark.pipelines.status import flows_of
from ottla.spark.pipelines.stored_run import save as save_run

TOML = """\
name = "NAME"
checkpoint = "state/NAME"

[[source]]
name = "orders"
topics = ["orders"]
schema = "id BIGINT NOT NULL, customer STRING, total DOUBLE, at TIMESTAMP"
event_time = "at"
watermark = "10 minutes"
group_id = "orders-pipeline"

[[table]]
name = "customers"
format = "parquet"
path = "customers"
schema = "customer STRING, country STRING"

[[step]]
name = "known"
input = "orders"
join = "customers"
on = ["customer"]

[[step]]
name = "by_country"
input = "known"
window = "5 minutes"
group_by = ["country"]
aggregate = { revenue = "sum(total)" }

[[expect]]
name = "positive"
input = "orders"
that = "total >= 0"
otherwise = "drop"
at_most = "5%"

[[sink]]
name = "table"
input = "known"
format = "parquet"
path = "table"

[[sink]]
name = "revenue"
input = "by_country"
format = "topic"
topic = "revenue"
mode = "append"

[dead_letters]
topic = "NAME.dead"
"""
BROKEN = (
    (b'{"id": 17, "customer": "ada", "total": "a lot"}', "total: 'a lot' is not a number"),
    (b'{"id": null, "customer": "bob", "total": 3}', "id: null, but the column is NOT NULL"),
    (b'{"id": 19, "customer": "<b>eve</b>", "to', "not valid JSON: unterminated string at column 36"),
)


def prepare(directory: Path, broker: Broker, name: str = "orders") -> tuple[Path, Pipeline]:
    """A pipeline with all that a page can show."""
    file = directory / f"{name}.toml"
    file.write_text(TOML.replace("NAME", name))
    (directory / "customers").mkdir(exist_ok=True)
    pipeline = load(file, default_servers=broker.bootstrap_servers)
    with Admin(broker.client_config()) as admin:
        admin.create_topics([NewTopic("orders", 1), NewTopic(f"{name}.dead", 1)], raise_errors=False)
    with Producer(broker.client_config()) as producer:
        for number in range(60):
            producer.send("orders", json.dumps({"id": number}).encode(), partition=0)
        for number in range(23):
            value, reason = BROKEN[0 if number % 4 else 1 + number // 4 % 2]
            headers = {
                "topic": "orders",
                "partition": "0",
                "offset": str(number),
                "error-class": "ottla.MalformedRecord",
                "error-message": reason.replace("lot", f"lot {number}"),
            }
            named = [(PREFIX + key, text.encode()) for key, text in headers.items()]
            producer.send(f"{name}.dead", value, key=b"order-%d" % number, partition=0, headers=named)
    _checkpoints(pipeline)
    board = _board(pipeline)
    now = time.time_ns() // 1_000_000
    save_run(pipeline, board, started_at=now - 3_600_000, now=now)
    save_rules(pipeline, board)
    save_audit(pipeline, _audit(now))
    return file, pipeline


def _checkpoints(pipeline: Pipeline) -> None:
    now = time.time_ns() // 1_000_000
    for flow in flows_of(pipeline):
        directory = Path(flow.directory)
        plan = ["v1", json.dumps({"batchTimestampMs": now, "conf": {}}), json.dumps({"orders": {"0": 48}})]
        for name, text in (("offsets", "\n".join(plan)), ("commits", "v1\n{}")):
            (directory / name).mkdir(parents=True, exist_ok=True)
            (directory / name / "239").write_text(text)


def _board(pipeline: Pipeline) -> Board:
    flows = ["table", "revenue", "dead-letters.orders"]
    board = Board(pipeline.name, flows, dead_letters={"dead-letters.orders"})
    begin = time.time() - 60 * 10
    for number, flow in enumerate(flows):
        board.started(flow, flow)
        for batch in range(60):
            rows = int(4_000 + 1_500 * ((batch * 7 + number * 11) % 13) / 13)
            seconds = 1.2 + ((batch * 5 + number * 3) % 9) / 9 + number * 0.6
            if flow == "table":
                board.counted(flow, batch + 180, {"positive": Counted(rows, batch * 13 % 41)})
            written = batch % 3 if flow.startswith("dead") else rows
            board.progress(flow, _progress(begin + 10 * batch, batch + 180, rows, seconds, written))
    return board


def _progress(at: float, number: int, rows: int, seconds: float, written: int) -> dict[str, Any]:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(at))
    late = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(at - 600))
    return {
        "batchId": number,
        "timestamp": stamp,
        "numInputRows": rows,
        "durationMs": {"triggerExecution": round(seconds * 1000)},
        "eventTime": {"watermark": late},
        "sources": [{"endOffset": {"orders": {"0": 48}}, "latestOffset": {"orders": {"0": 60}}}],
        "sink": {"numOutputRows": written},
    }


def _audit(now: int) -> StoredAudit:
    total = {"produced": 48, "arrived": 41, "dead": 6, "filtered": 1, "pending": 0, "lost": 0, "repeated": 0}
    report = {"pipeline": "orders", "ok": True, "audits": [{"sink": "table", "source": "orders", "total": total}]}
    return StoredAudit(now - 600_000, report, "orders -> table\n48 records: 41 arrived, 6 dead, 1 filtered\nok")
