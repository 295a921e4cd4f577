"""``ottla pipeline status FILE``: how far a pipeline is, without Spark."""

from __future__ import annotations

import argparse
import sys
import time
from argparse import Namespace
from dataclasses import asdict
from typing import Any

from ottla.cli.pipeline_common import add_cluster, add_file, declared, telling_problems
from ottla.cli.terminal import plural, print_json, table
from ottla.spark.pipelines.status import FlowStatus, Status, TopicStatus, status_of
from ottla.types import Millis

_EPILOG = """\
Everything is read from the checkpoints, which are plain files, and from the broker: it works while the pipeline runs
and while it does not. LAG counts from the last finished micro-batch to the end of the log; GROUP-LAG from what is
committed to the group, which is what lag monitors see.

exit codes: 0; 1 if something could not be found out; 2 wrong usage or declaration
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    add_file(parser)
    add_cluster(parser)
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument("--offline", action="store_true", help="only the checkpoints: do not ask the broker")
    parser.set_defaults(run=run)


@telling_problems
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
    parts = [f"{status.pipeline} is {running}", table(headers, rows)]
    for letters in status.dead_letters:
        if letters.waiting is None:
            parts.append(f"{letters.topic}: no dead letters, the topic is not there yet")
            continue
        about = "" if letters.exact else "about "
        hint = f": ottla pipeline replay {file} sends them back" if letters.waiting else ""
        waits = "waits" if letters.waiting == 1 else "wait"
        parts.append(f"{letters.topic}: {about}{plural(letters.waiting, 'dead letter')} {waits}{hint}")
    return "\n".join(parts)


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
        "lag": flow.lag,
        "topics": [asdict(one) for one in flow.topics],
    }
