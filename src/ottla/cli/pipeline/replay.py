"""``ottla pipeline replay FILE`` or ``--topic TOPIC``: send dead letters back to their original topics."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable
from typing import Any

from ottla.cli.options import (
    BOOTSTRAP_VARIABLE,
    DEFAULT_BOOTSTRAP,
    UsageError,
    command_config,
    not_negative,
    positive,
)
from ottla.cli.pipeline.common import add_cluster, add_file, declared, reports_problems
from ottla.cli.terminal import Progress, plural, table
from ottla.errors import OttlaError, UnknownTopicOrPartition
from ottla.spark.pipelines.replay import MAX_REPLAYS, Choice, Plan, Replay, Replayed, Waiting
from ottla.spark.pipelines.runner import client_config
from ottla.spark.pipelines.status import dead_letter_topics, replay_group
from ottla.times import parse_duration, parse_time

ERROR_WIDTH = 80
SHOWN = 20
_EPILOG = """\
The original key, value and headers go back to the original topic in transactions, so every dead letter is sent exactly
once. Replayed letters are recorded as the offsets of a group (TOPIC.replay), and the next replay continues after them.
Letters that are not selected keep waiting. A replayed record has the header ottla-replays, a count; after --max-replays
times it is not sent again. Consumers must use isolation.level=read_committed, as pipelines do, to not see records of an
aborted replay.

Dead letters of ottla.DeadLetters work, too: name their topic with --topic, without FILE.

examples:
  ottla pipeline replay orders.toml --dry-run
  ottla pipeline replay orders.toml --error 'not a number' --limit 100
  ottla pipeline replay --topic orders.dead --since 36h
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    add_file(parser, optional=True)
    add_cluster(parser)
    parser.add_argument(
        "--topic", action="append", metavar="TOPIC", help="a dead letter topic, instead of those of FILE; repeatable"
    )
    which = parser.add_argument_group("which dead letters (default: all)")
    which.add_argument("--error", metavar="TEXT", help="only letters whose error contains this text, ignoring case")
    which.add_argument("--from-topic", metavar="TOPIC", help="only letters from this original topic")
    which.add_argument(
        "--since",
        type=_moment,
        metavar="T",
        help="only letters written since this time: ISO 8601, or a duration such as 36h",
    )
    which.add_argument("--until", type=_moment, metavar="T", help="only letters written before this time")
    which.add_argument("-n", "--limit", type=positive, metavar="N", help="at most N letters")
    which.add_argument(
        "--max-replays",
        type=not_negative,
        default=MAX_REPLAYS,
        metavar="N",
        help=f"skip letters that were replayed N times already (default: {MAX_REPLAYS})",
    )
    parser.add_argument("--dry-run", action="store_true", help="only show which letters would be sent")
    parser.add_argument("--to", metavar="TOPIC", help="send all letters to this topic")
    parser.add_argument("--keep-timestamps", action="store_true", help="keep the original timestamps of the records")
    parser.add_argument("--group", metavar="GROUP", help="the group that stores the progress (default: TOPIC.replay)")
    parser.add_argument("--json", action="store_true", help="print a JSON object; with --dry-run, one per letter")
    parser.set_defaults(run=run)


def _moment(text: str) -> int:
    """Parse a time, or a duration before now."""
    try:
        return time.time_ns() // 1_000_000 - parse_duration(text.removesuffix(" ago"))
    except argparse.ArgumentTypeError:
        return parse_time(text)


@reports_problems
def run(args: Namespace) -> int:
    topics, config = _letters(args)
    choice = Choice(args.error, args.from_topic, args.since, args.until, args.max_replays)
    totals, left = Replayed(), Counter[str]()
    for topic in topics:
        group = args.group or replay_group(topic)
        with Replay([topic], group=group, config=config, to=args.to, keep_timestamps=args.keep_timestamps) as replay:
            try:
                plan = _planned(args, replay, choice, totals)
            except UnknownTopicOrPartition:
                if args.topic:
                    raise OttlaError(f"topic {topic} does not exist; `ottla topics list` lists all topics") from None
                continue  # no dead letters were ever written
            left += plan.left
            done = Replayed(plan.chosen) if args.dry_run else _sent(args, replay, plan)
        totals.sent += done.sent
        totals.kept += done.kept
    _report(args, totals, left)
    return 0


def _letters(args: Namespace) -> tuple[list[str], dict[str, object]]:
    """The dead letter topics, and the client config."""
    if args.file is None:
        if not args.topic:
            raise UsageError("name the pipeline's FILE, or the dead letter topic with --topic")
        servers = args.bootstrap_server or os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP
        return args.topic, {**command_config(args), "bootstrap.servers": servers}
    pipeline = declared(args)
    if pipeline.dead_letters is None and not args.topic:
        raise UsageError(f"{args.file} declares no dead letters: name the topic with --topic")
    return args.topic or dead_letter_topics(pipeline), client_config(pipeline, pipeline.dead_letters)


def _planned(args: Namespace, replay: Replay, choice: Choice, so_far: Replayed) -> Plan:
    limit = None if args.limit is None else max(args.limit - so_far.sent, 0)
    if not args.dry_run:
        return replay.plan(choice, limit=limit)
    if args.json:
        return replay.plan(choice, limit=limit, each=_print_json)
    rows: list[list[object]] = []
    plan = replay.plan(choice, limit=limit, each=_collector(rows))
    if rows:
        print(table(("DEAD LETTER", "FROM", "OFFSET", "REPLAYS", "ERROR"), rows))
    if plan.chosen > len(rows):
        print(f"and {plan.chosen - len(rows):,} more (--json shows all)")
    return plan


def _collector(rows: list[list[object]]) -> Callable[[Waiting | None, str | None], None]:
    def each(one: Waiting | None, against: str | None) -> None:
        if one is not None and against is None and len(rows) < SHOWN:
            letter = one.letter
            source = f"{letter.topic}-{letter.partition}"
            rows.append([f"{one.place}:{one.offset}", source, letter.offset, one.replays, _cut(one.error)])

    return each


def _cut(text: str) -> str:
    return text if len(text) <= ERROR_WIDTH else f"{text[: ERROR_WIDTH - 1]}…"


def _print_json(one: Waiting | None, against: str | None) -> None:
    if one is None:
        return
    letter = one.letter
    fields: dict[str, Any] = {
        "topic": one.place.topic,
        "partition": one.place.partition,
        "offset": one.offset,
        "from": {"topic": letter.topic, "partition": letter.partition, "offset": letter.offset},
        "error_class": letter.error_class,
        "error": letter.error_message,
        "timestamp": one.timestamp,
        "replays": one.replays,
        "chosen": against is None,
        "reason": against,
    }
    sys.stdout.write(json.dumps(fields, ensure_ascii=False) + "\n")


def _sent(args: Namespace, replay: Replay, plan: Plan) -> Replayed:
    progress = Progress(enabled=not args.json)
    try:
        return replay.run(plan, each=lambda done: progress.update(done.sent, 0))
    finally:
        progress.clear()


def _report(args: Namespace, done: Replayed, left: Counter[str]) -> None:
    if args.json:
        if not args.dry_run:
            print(json.dumps({"sent": done.sent, "waiting": dict(left)}, ensure_ascii=False))
        return
    verb = "would be sent" if args.dry_run else "sent"
    print(f"{plural(done.sent, 'dead letter')} {verb} back" + (f" to {args.to}" if args.to else ""))
    for reason, count in sorted(left.items()):
        print(f"{plural(count, 'dead letter')} still waiting: {reason}")
