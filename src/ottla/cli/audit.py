"""``ottla audit SOURCE``: check that the records of a topic reached a table or another topic."""

from __future__ import annotations

import argparse
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.cli.options import (
    UsageError,
    add_bootstrap_option,
    add_master_option,
    not_negative,
    parse_setting,
    settings,
)
from ottla.cli.spark_session import spark_options, spark_session
from ottla.cli.terminal import note, print_json
from ottla.errors import OttlaError
from ottla.times import parse_duration, parse_time

if TYPE_CHECKING:
    from ottla.spark.audit.report import AuditReport

FOUND_SOMETHING = 1
NOT_DONE = 3
_EPILOG = """\
examples:
  ottla audit orders --table /data/orders --group orders-to-table
  ottla audit orders --table /data/orders --key "get_json_object(cast(value as string), '$.id')" --target-key id
  ottla audit orders --topic orders-clean --dead-letters orders.dead --late 5m --chart audit.svg

Rows of a table are matched by the columns _topic, _partition and _offset (--origin names others), or by a key: --key
is SQL over key, value and headers of the source, and --target-key is SQL over the target (default for a topic: --key).
docs/audit.md explains the counts. Requires pip install 'ottla[spark]'.

exit codes:
  0  nothing lost or repeated    1  problems found    2  wrong usage    3  the audit failed
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("source", metavar="SOURCE", help="the topic to check")
    add_bootstrap_option(parser)
    _add_target(parser)
    _add_matching(parser)
    _add_judgement(parser)
    _add_output(parser)
    parser.set_defaults(run=run)


def _add_target(parser: argparse.ArgumentParser) -> None:
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument(
        "--table", metavar="PATH", help="the table that should contain its records, on any path that Spark can read"
    )
    target.add_argument("--topic", metavar="TOPIC", help="the topic that should contain its records")
    parser.add_argument("--format", default="parquet", metavar="NAME", help="format of the table (default: parquet)")
    parser.add_argument(
        "--table-option",
        type=parse_setting,
        action="append",
        metavar="NAME=VALUE",
        help="an option of the table format; repeatable",
    )


def _add_matching(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--origin",
        type=_origin,
        metavar="COLUMNS",
        help="the table's columns with topic, partition and offset, or partition and offset "
        "(default: _topic,_partition,_offset)",
    )
    parser.add_argument(
        "--origin-headers",
        action="store_true",
        help="match by the headers origin-topic, origin-partition and origin-offset",
    )
    parser.add_argument("--key", metavar="SQL", help="match by this key: SQL over the columns of the source")
    parser.add_argument("--target-key", metavar="SQL", help="the key as SQL over the columns of the target")
    parser.add_argument(
        "--keep-repeats",
        action="store_true",
        help="expect as many rows per key as the source has records, instead of one",
    )


def _add_judgement(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dead-letters", metavar="TOPIC", help="records in this dead letter topic are not lost")
    parser.add_argument(
        "-g", "--group", metavar="GROUP", help="records that this group has not committed are pending, not lost"
    )
    parser.add_argument("--checkpoint", metavar="PATH", help="like --group, with the checkpoint of a streaming query")
    parser.add_argument(
        "--since", type=parse_time, metavar="TIME", help="only records at or after this time (ISO 8601)"
    )
    parser.add_argument("--until", type=parse_time, metavar="TIME", help="only records before this time")
    parser.add_argument(
        "--order",
        choices=("key", "partition", "none"),
        default="key",
        help="which records of a topic must keep their order: those of a key, of a partition, or none (default: key)",
    )
    parser.add_argument(
        "--late", type=parse_duration, metavar="TIME", help="records that took longer are late, such as 90s or 5m"
    )
    parser.add_argument("--arrival", metavar="SQL", help="the arrival time of a row: SQL over the columns of the table")
    parser.add_argument(
        "--read-uncommitted",
        action="store_true",
        help="include records of open and aborted transactions",
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--chart", type=Path, metavar="FILE.svg", help="write a timeline as SVG")
    parser.add_argument(
        "--examples", type=not_negative, default=10, metavar="N", help="show N examples of each kind (default: 10)"
    )
    add_master_option(parser)


def _origin(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if len(names) not in (2, 3) or not all(names):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a list of columns: write TOPIC,PARTITION,OFFSET or PARTITION,OFFSET"
        )
    return names if len(names) == 3 else ("", *names)


def run(args: Namespace) -> int:
    _check_usage(args)
    try:
        with spark_session("ottla audit", args.master) as spark:
            from ottla.spark.audit import Origin, audit

            note("reading both sides ...")
            report = audit(
                spark,
                args.source,
                options=spark_options(args),
                table=args.table,
                format=args.format,
                table_options=settings(args.table_option),
                topic=args.topic,
                origin=None if args.origin is None else Origin(*args.origin),
                origin_headers=args.origin_headers,
                key=args.key,
                target_key=args.target_key,
                keep_repeats=args.keep_repeats,
                dead_letters=args.dead_letters,
                group=args.group,
                checkpoint=args.checkpoint,
                since=args.since,
                until=args.until,
                order=args.order,
                late_after=args.late,
                arrival=args.arrival,
                limit=args.examples,
                isolation="read_uncommitted" if args.read_uncommitted else "read_committed",
            )
    except UsageError:
        raise
    except OttlaError as error:
        # Exit code 1 means that the audit found problems; a failed audit needs a different code.
        print(f"ottla: error: {' '.join(str(error).split())}", file=sys.stderr)
        return NOT_DONE
    return _report(report, args)


def _check_usage(args: Namespace) -> None:
    if args.target_key is not None and args.key is None:
        raise UsageError("--target-key requires --key, the key of the source records")
    if args.group is not None and args.checkpoint is not None:
        raise UsageError("use either --group or --checkpoint, not both")
    if args.arrival is not None and args.topic is not None:
        raise UsageError("--arrival requires --table; for a topic, the record timestamp is the arrival time")
    if args.late is not None and args.table is not None and args.arrival is None:
        raise UsageError("--late requires --arrival, the column with the arrival time")
    if args.origin_headers and (args.topic is None or args.target_key is not None):
        raise UsageError("--origin-headers requires --topic and excludes --target-key")
    if args.topic is not None and (args.origin is not None or args.table_option):
        raise UsageError("--origin and --table-option require --table")
    if args.topic == args.source:
        raise UsageError(f"source and target are the same topic: {args.source}")


def _report(report: AuditReport, args: Namespace) -> int:
    if args.chart is not None:
        args.chart.write_text(report.to_svg(), encoding="utf-8")
    if args.json:
        print_json(report.to_json())
    else:
        print(report.to_text())
    if args.chart is not None:
        note(f"chart written to {args.chart}")
    return 0 if report.ok else FOUND_SOMETHING
