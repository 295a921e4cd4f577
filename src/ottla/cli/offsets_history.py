"""``ottla offsets history``: all that groups ever committed, kept as a table. See `ottla.spark.offset_history`."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.cli.consume import parse_time
from ottla.cli.groups_reset_plan import parse_duration
from ottla.cli.options import UsageError, add_bootstrap_option
from ottla.cli.terminal import note, print_json, table

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from ottla.spark.offset_history import OffsetHistory

_EPILOG = """\
examples:
  ottla offsets history --out history                              what is there now, and what came since the last time
  ottla offsets history --out history --follow                     go on until Ctrl-C
  ottla offsets history --out history --group billing --chart lag.svg

The table is parquet, in folders by kind (commit, group, member, rebalance) and day; docs/audit.md has its columns.
__consumer_offsets is compacted: what nobody has kept in time is gone, so let it follow, or run it often. A run goes on
where the last one stopped, and nothing is in the table twice. Needs pip install 'ottla[spark]'.
"""
_LOOK_SECONDS = 0.2


def configure(actions: Any) -> None:
    summary = "keep the history of __consumer_offsets as a table: commits, lag over time, generations"
    one: argparse.ArgumentParser = actions.add_parser(
        "history",
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_bootstrap_option(one)
    one.add_argument("--out", required=True, metavar="DIR", help="the table, wherever Spark can write it")
    how = one.add_mutually_exclusive_group()
    how.add_argument("--once", action="store_true", help="keep what is there now, and end (this is the default)")
    how.add_argument("--follow", action="store_true", help="go on until Ctrl-C")
    one.add_argument(
        "--every", type=parse_duration, default=10_000, metavar="TIME", help="how often to write with --follow (10s)"
    )
    one.add_argument("-g", "--group", metavar="GROUP", help="show the lag of this group over time")
    one.add_argument("--since", type=parse_time, metavar="TIME", help="its lag from this time on (ISO 8601)")
    one.add_argument("--until", type=parse_time, metavar="TIME", help="its lag until this time")
    one.add_argument("--step", type=parse_duration, metavar="TIME", help="how far apart the times are, such as 1m")
    one.add_argument("--chart", type=Path, metavar="FILE.svg", help="write the lag of --group as a picture")
    one.add_argument("--json", action="store_true", help="print JSON instead of text")
    one.add_argument("--master", default="local[*]", metavar="URL", help="the master of a Spark cluster (local[*])")
    one.set_defaults(run=run)


def run(args: Namespace) -> int:
    lonely = [name for name in ("chart", "since", "until", "step") if getattr(args, name) is not None]
    if lonely and args.group is None:
        raise UsageError(f"--{lonely[0]} needs --group: whose lag is meant")
    # Spark's part is imported here: `ottla offsets dump` has no need of it.
    from ottla.cli.spark_session import spark_errors, spark_options, spark_session

    with spark_session("ottla offsets history", args.master) as spark, spark_errors():
        from ottla.spark.offset_history import offset_history, record_history

        options = spark_options(args)
        query = record_history(spark, args.out, options=options, every_ms=args.every if args.follow else None)
        _wait(query)
        history = offset_history(spark, options=options, path=args.out)
        return _tell_lag(history, args) if args.group is not None else _tell_groups(history, args)


def _wait(query: StreamingQuery) -> None:
    """Until it ends, or somebody wants it to."""
    with _stopped() as stopped:
        while query.isActive and not stopped.is_set():
            query.awaitTermination(_LOOK_SECONDS)
        if query.isActive:
            query.stop()
    failure = query.exception()
    if failure is not None:
        raise failure


@contextmanager
def _stopped() -> Iterator[threading.Event]:
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: event.set()) for number in numbers]
    try:
        yield event
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _tell_groups(history: OffsetHistory, args: Namespace) -> int:
    rows = [row.asDict() for row in history.groups().collect()]
    if args.json:
        print_json([{name: _plain(value) for name, value in row.items()} for row in rows])
        return 0
    titles = ["GROUP", "COMMITS", "PARTITIONS", "GENERATION", "MEMBERS", "FIRST-COMMIT", "LAST-COMMIT"]
    names = ["group_id", "commits", "partitions", "generation", "members", "first_commit", "last_commit"]
    print(table(titles, [[_plain(row[name]) for name in names] for row in rows]))
    return 0


def _tell_lag(history: OffsetHistory, args: Namespace) -> int:
    bounds = {"since": args.since, "until": args.until, "step_ms": args.step}
    rows = history.lag(args.group, **bounds).orderBy("time", "topic", "partition").collect()
    if not rows:
        print(f"ottla: error: group {args.group} has committed nothing in this history", file=sys.stderr)
        return 1
    if args.chart is not None:
        args.chart.write_text(history.lag_chart(args.group, **bounds), encoding="utf-8")
        note(f"the chart is in {args.chart}")
    if args.json:
        print_json([{name: _plain(value) for name, value in row.asDict().items()} for row in rows])
        return 0
    names = ["time", "topic", "partition", "committed", "log_end", "lag"]
    titles = ["TIME", "TOPIC", "PARTITION", "COMMITTED", "LOG-END", "LAG"]
    print(table(titles, [[_plain(row[name]) for name in names] for row in rows]))
    return 0


def _plain(value: Any) -> Any:
    return value.isoformat(sep=" ", timespec="milliseconds") if hasattr(value, "isoformat") else value
