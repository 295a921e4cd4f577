"""``ottla audit SOURCE``: which records of a topic reached a table or another topic. See `ottla.spark.audit`."""

from __future__ import annotations

import argparse
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.cli.consume import parse_time
from ottla.cli.groups_reset_plan import parse_duration
from ottla.cli.options import UsageError, add_bootstrap_option, not_negative, parse_setting, settings
from ottla.cli.spark_session import spark_errors, spark_options, spark_session
from ottla.cli.terminal import note, print_json
from ottla.errors import OttlaError

if TYPE_CHECKING:
    from ottla.spark.audit.report import AuditReport

FOUND_SOMETHING = 1
NOT_DONE = 3
_EPILOG = """\
examples:
  ottla audit orders --table /data/orders --group orders-to-table
  ottla audit orders --table /data/orders --key "get_json_object(cast(value as string), '$.id')" --target-key id
  ottla audit orders --topic orders-clean --dead-letters orders.dead --late 5m --chart audit.svg

A table is matched by its columns _topic, _partition and _offset (--origin names others), or by a key of the records:
--key is SQL over key, value and headers of the source, --target-key SQL over the target (of a topic the same, if not
given). What the counts mean is in docs/audit.md. Needs pip install 'ottla[spark]'.

exit code:
  0  nothing lost or repeated    1  something was found    2  wrong usage    3  the audit could not be made
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument("source", metavar="SOURCE", help="the topic whose records are followed")
    add_bootstrap_option(parser)
    _add_target(parser)
    _add_matching(parser)
    _add_judgement(parser)
    _add_output(parser)
    parser.set_defaults(run=run)


def _add_target(parser: argparse.ArgumentParser) -> None:
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--table", metavar="PATH", help="the table that should have them, wherever Spark can read it")
    target.add_argument("--topic", metavar="TOPIC", help="the topic that should have them")
    parser.add_argument("--format", default="parquet", metavar="NAME", help="the table's format (parquet)")
    parser.add_argument(
        "--table-option", type=parse_setting, action="append", metavar="NAME=VALUE", help="an option of that format"
    )


def _add_matching(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--origin",
        type=_origin,
        metavar="COLUMNS",
        help="the columns with topic, partition and offset, or with the last two (_topic,_partition,_offset)",
    )
    parser.add_argument(
        "--origin-headers", action="store_true", help="records of the topic have headers origin-partition and so on"
    )
    parser.add_argument("--key", metavar="SQL", help="what tells records apart, over the columns of the source")
    parser.add_argument("--target-key", metavar="SQL", help="the same over the columns of the target")
    parser.add_argument(
        "--keep-repeats",
        action="store_true",
        help="the target should have as many rows of a key as the source has records, not one",
    )


def _add_judgement(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dead-letters", metavar="TOPIC", help="a record that is there is not lost")
    parser.add_argument("-g", "--group", metavar="GROUP", help="what it has not committed yet is pending, not lost")
    parser.add_argument("--checkpoint", metavar="PATH", help="the same by the checkpoint of a streaming query")
    parser.add_argument("--since", type=parse_time, metavar="TIME", help="only records from this time on (ISO 8601)")
    parser.add_argument("--until", type=parse_time, metavar="TIME", help="only records before this time")
    parser.add_argument(
        "--order",
        choices=("key", "partition", "none"),
        default="key",
        help="what must keep its order in a topic: records of a key, of a partition, or none (key)",
    )
    parser.add_argument(
        "--late", type=parse_duration, metavar="TIME", help="late is what took longer, such as 90s or 5m"
    )
    parser.add_argument("--arrival", metavar="SQL", help="the time of arrival of a row of the table, such as a column")
    parser.add_argument(
        "--read-uncommitted",
        action="store_true",
        help="records of open and aborted transactions count, too",
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--chart", type=Path, metavar="FILE.svg", help="write a timeline of it as a picture")
    parser.add_argument("--examples", type=not_negative, default=10, metavar="N", help="show N of each kind (10)")
    parser.add_argument("--master", default="local[*]", metavar="URL", help="the master of a Spark cluster (local[*])")


def _origin(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if len(names) not in (2, 3) or not all(names):
        raise argparse.ArgumentTypeError(f"{text!r} does not name columns: write TOPIC,PARTITION,OFFSET")
    return names if len(names) == 3 else ("", *names)


def run(args: Namespace) -> int:
    _check_usage(args)
    try:
        with spark_session("ottla audit", args.master) as spark, spark_errors():
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
        # 1 says that something was found, and a scheduler must be able to tell that from this.
        print(f"ottla: error: {' '.join(str(error).split())}", file=sys.stderr)
        return NOT_DONE
    return _tell(report, args)


def _check_usage(args: Namespace) -> None:
    if args.target_key is not None and args.key is None:
        raise UsageError("--target-key needs --key: what is compared with it on the side of the source")
    if args.group is not None and args.checkpoint is not None:
        raise UsageError("give --group or --checkpoint, not both: one says how far the pipeline is")
    if args.arrival is not None and args.topic is not None:
        raise UsageError("--arrival is for a table: records of a topic arrive at their timestamp")
    if args.late is not None and args.table is not None and args.arrival is None:
        raise UsageError("--late needs --arrival, the column of the table with the time of arrival")
    if args.origin_headers and (args.topic is None or args.target_key is not None):
        raise UsageError("--origin-headers is for --topic, and needs no --target-key")
    if args.topic is not None and (args.origin is not None or args.table_option):
        raise UsageError("--origin and --table-option are for a table")
    if args.topic == args.source:
        raise UsageError(f"topic {args.source} cannot be audited against itself")


def _tell(report: AuditReport, args: Namespace) -> int:
    if args.chart is not None:
        args.chart.write_text(report.to_svg(), encoding="utf-8")
    if args.json:
        print_json(report.to_json())
    else:
        print(report.to_text())
    if args.chart is not None:
        note(f"the chart is in {args.chart}")
    return 0 if report.ok else FOUND_SOMETHING
