"""``ottla pipeline status FILE``: show the progress of a pipeline, without Spark."""

from __future__ import annotations

import argparse
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from ottla.cli.options import add_json_option
from ottla.cli.pipeline.common import add_cluster, add_file, declared, reports_problems
from ottla.cli.pipeline.display import rule_fields, rule_table
from ottla.cli.terminal import plural, print_json, table
from ottla.spark.pipelines.rule_counts import sentence
from ottla.spark.pipelines.status import FlowStatus, Status, TopicStatus, status_of
from ottla.types import Millis

_EPILOG = """\
The status comes from the checkpoint files and the broker; the pipeline may be running or not. LAG is the number of
records after the last finished micro-batch. GROUP-LAG is the number of records after the offsets committed to the
group, as lag monitors show it. The counts of rules are those of the current run, or of the last one.

exit codes: 0 complete status; 1 some information is missing; 2 wrong usage or declaration
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    add_file(parser)
    add_cluster(parser)
    add_json_option(parser)
    parser.add_argument("--offline", action="store_true", help="read only the checkpoints, not the broker")
    parser.set_defaults(run=run)


@reports_problems
def run(args: Namespace) -> int:
    status = status_of(declared(args), ask=not args.offline)
    if args.json:
        print_json(as_json(status))
    else:
        print(as_text(status, now=time.time_ns() // 1_000_000, file=str(args.file)))
    for problem in status.problems:
        print(f"ottla: {problem}", file=sys.stderr)
    return 1 if status.problems else 0


def as_text(status: Status, *, now: Millis, file: str = "FILE") -> str:
    running = "not running" if status.running is None else f"running: {status.running}"
    rows = [row for flow in status.flows for row in _rows(flow, now)]
    headers = ("FLOW", "BATCH", "FINISHED", "TOPIC", "LAG", "GROUP", "GROUP-LAG")
    parts = [f"{status.pipeline} is {running}", table(headers, rows), *_shared(status.flows)]
    for letters in status.dead_letters:
        if letters.waiting is None:
            parts.append(f"{letters.topic}: no dead letters, the topic does not exist yet")
            continue
        about = "" if letters.exact else "about "
        hint = f": replay with `ottla pipeline replay {file}`" if letters.waiting else ""
        waits = "waits" if letters.waiting == 1 else "wait"
        parts.append(f"{letters.topic}: {about}{plural(letters.waiting, 'dead letter')} {waits}{hint}")
    parts += [text] if (text := rule_table(status.rules)) else []
    parts += [f"limit exceeded: {sentence(one, file)}" for one in status.exceeded]
    return "\n".join(parts)


def _shared(flows: Sequence[FlowStatus]) -> Iterator[str]:
    """Who shares a read, and who is behind."""
    sources = dict.fromkeys(flow.shares for flow in flows if flow.shares is not None)
    for source in sources:
        names = [flow.name for flow in flows if flow.shares == source]
        if len(names) > 1:
            yield f"{', '.join(names[:-1])} and {names[-1]} share one read of source {source}"
    for flow in flows:
        if flow.waiting:
            yield f"{flow.name} is late: {flow.waiting} of its batches wait in the checkpoint"


def _rows(flow: FlowStatus, now: Millis) -> list[list[object]]:
    checkpoint = flow.checkpoint
    if checkpoint is None:
        return [[flow.name, None, "never ran", None, None, None, None]]
    finished = "-" if checkpoint.finished_at is None else f"{ago(now - checkpoint.finished_at)} ago"
    if checkpoint.unfinished is not None:
        finished += f" (batch {checkpoint.unfinished} is not finished)"
    topics: tuple[TopicStatus | None, ...] = flow.topics or (None,)
    rows: list[list[object]] = []
    for one in topics:
        head: list[object] = [flow.name, checkpoint.finished, finished] if not rows else ["", "", ""]
        tail = [None] * 4 if one is None else [one.topic, one.lag, one.group, one.committed_lag]
        rows.append([*head, *tail])
    return rows


def ago(ms: Millis) -> str:
    """
    >>> ago(4_200), ago(180_000), ago(7_300_000), ago(200_000_000)
    ('4 s', '3 min', '2 h', '2 d')
    """
    seconds = max(ms, 0) // 1000
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size or (unit == "min" and seconds >= size):
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def as_json(status: Status) -> dict[str, Any]:
    return {
        "pipeline": status.pipeline,
        "running": None if status.running is None else asdict(status.running),
        "flows": [_flow_json(flow) for flow in status.flows],
        "dead_letters": [asdict(one) for one in status.dead_letters],
        "rules": [rule_fields(one) for one in status.rules],
        "limits_exceeded": [sentence(one) for one in status.exceeded],
        "problems": list(status.problems),
    }


def _flow_json(flow: FlowStatus) -> dict[str, Any]:
    checkpoint = flow.checkpoint
    return {
        "flow": flow.name,
        "checkpoint": flow.directory,
        "finished_batch": None if checkpoint is None else checkpoint.finished,
        "finished_at": None if checkpoint is None else checkpoint.finished_at,
        "unfinished_batch": None if checkpoint is None else checkpoint.unfinished,
        "shares": flow.shares,
        "late_batches": flow.waiting,
        "lag": flow.lag,
        "topics": [asdict(one) for one in flow.topics],
    }
