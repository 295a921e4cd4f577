"""``ottla offsets history``: keep all commits of all groups as a table. See `ottla.spark.offset_history`."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.cli.options import UsageError, add_bootstrap_option, add_json_option, add_master_option, add_parser
from ottla.cli.terminal import note, print_json, table
from ottla.times import parse_duration, parse_time

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from ottla.spark.offset_history import OffsetHistory

_EPILOG = """\
examples:
  ottla offsets history --out history                              add new records since the last run
  ottla offsets history --out history --follow                     keep running until Ctrl-C
  ottla offsets history --out history --group billing --chart lag.svg

The table is parquet, partitioned by kind (commit, group, member, rebalance) and day; docs/audit.md lists its columns.
__consumer_offsets is compacted, so old commits disappear: use --follow, or run this often. A run continues where the
last one stopped, and the table has no duplicates. Requires pip install 'ottla[spark]'.
"""
_LOOK_SECONDS = 0.2


def configure(actions: Any) -> None:
    summary = "keep the history of __consumer_offsets as a table: commits, lag over time, generations"
    one = add_parser(actions, "history", summary, epilog=_EPILOG)
    add_bootstrap_option(one)
    one.add_argument("--out", required=True, metavar="DIR", help="the table, on any path that Spark can write")
    how = one.add_mutually_exclusive_group()
    how.add_argument("--once", action="store_true", help="add the current records, and exit (the default)")
    how.add_argument("--follow", action="store_true", help="keep running until Ctrl-C")
    one.add_argument(
        "--every",
        type=parse_duration,
        default=10_000,
        metavar="TIME",
        help="how often to write with --follow (default: 10s)",
    )
    one.add_argument("-g", "--group", metavar="GROUP", help="show the lag of this group over time")
    one.add_argument("--since", type=parse_time, metavar="TIME", help="the lag from this time on (ISO 8601)")
    one.add_argument("--until", type=parse_time, metavar="TIME", help="the lag until this time")
    one.add_argument("--step", type=parse_duration, metavar="TIME", help="the interval between two rows, such as 1m")
    one.add_argument("--chart", type=Path, metavar="FILE.svg", help="write a chart of the lag as SVG")
    add_json_option(one)
    add_master_option(one)
    one.set_defaults(run=run)


def run(args: Namespace) -> int:
    lonely = [name for name in ("chart", "since", "until", "step") if getattr(args, name) is not None]
    if lonely and args.group is None:
        raise UsageError(f"--{lonely[0]} requires --group")
    # `ottla offsets dump` must not import Spark.
    from ottla.cli.spark_session import spark_options, spark_session

    with spark_session("ottla offsets history", args.master) as spark:
        from ottla.spark.offset_history import offset_history, record_history

        options = spark_options(args)
        query = record_history(spark, args.out, options=options, every_ms=args.every if args.follow else None)
        _wait(query)
        history = offset_history(spark, options=options, path=args.out)
        return _print_lag(history, args) if args.group is not None else _print_groups(history, args)


def _wait(query: StreamingQuery) -> None:
    """Wait until the query ends or a signal arrives; a second signal ends the process."""
    from ottla.spark.pipelines.runner import Stop, handle_signals

    stop = Stop()
    undo = handle_signals(stop, at_once=lambda number: os._exit(128 + number))
    try:
        while query.isActive and stop.signal is None:
            query.awaitTermination(_LOOK_SECONDS)
        if query.isActive:
            query.stop()
    finally:
        undo()
    failure = query.exception()
    if failure is not None:
        raise failure


def _print_groups(history: OffsetHistory, args: Namespace) -> int:
    rows = [row.asDict() for row in history.groups().collect()]
    if args.json:
        print_json([{name: _plain(value) for name, value in row.items()} for row in rows])
        return 0
    titles = ["GROUP", "COMMITS", "PARTITIONS", "GENERATION", "MEMBERS", "FIRST-COMMIT", "LAST-COMMIT"]
    names = ["group_id", "commits", "partitions", "generation", "members", "first_commit", "last_commit"]
    print(table(titles, [[_plain(row[name]) for name in names] for row in rows]))
    return 0


def _print_lag(history: OffsetHistory, args: Namespace) -> int:
    bounds = {"since": args.since, "until": args.until, "step_ms": args.step}
    rows = history.lag(args.group, **bounds).orderBy("time", "topic", "partition").collect()
    if not rows:
        print(f"ottla: error: the history has no commits of group {args.group}", file=sys.stderr)
        return 1
    if args.chart is not None:
        args.chart.write_text(history.lag_chart(args.group, **bounds), encoding="utf-8")
        note(f"chart written to {args.chart}")
    if args.json:
        print_json([{name: _plain(value) for name, value in row.asDict().items()} for row in rows])
        return 0
    names = ["time", "topic", "partition", "committed", "log_end", "lag"]
    titles = ["TIME", "TOPIC", "PARTITION", "COMMITTED", "LOG-END", "LAG"]
    print(table(titles, [[_plain(row[name]) for name in names] for row in rows]))
    return 0


def _plain(value: Any) -> Any:
    return value.isoformat(sep=" ", timespec="milliseconds") if hasattr(value, "isoformat") else value
