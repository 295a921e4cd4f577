"""``ottla pipeline backfill FILE --from TIME --to TIME``: process a range of records again."""

from __future__ import annotations

import argparse
import sys
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from ottla.cli.options import UsageError, add_conf_option, add_json_option, add_master_option, settings
from ottla.cli.pipeline.common import add_cluster, add_file, chosen_sinks, declared, reports_problems
from ottla.cli.spark_session import spark_session
from ottla.cli.terminal import note, plural, print_json, table
from ottla.spark.pipelines.exit_codes import WRONG
from ottla.times import parse_time

if TYPE_CHECKING:
    from ottla.spark.pipelines.backfill.run import Backfilled

_EPILOG = """\
The records from --from to before --to, by their timestamps, go through the steps of the file as it is now, and into the
same tables. The pipeline may be running: records that it has not finished yet are left to it. Each table is changed in
one transaction. Without keys, the rows of these records are replaced; the table needs the columns of the origin
(origin = true). With keys and a sequence, rows are merged as always, so newer rows stay. If this would not be exact for
a sink, it is refused, and nothing is written. Broken records are counted, and not sent to the dead letters again.

The command can be repeated. `ottla pipeline audit` shows that no row is missing or twice.

exit codes: 0 done; 1 failed, and nothing was written by the failed sink; 2 wrong usage, or a sink cannot do it

examples:
  ottla pipeline backfill orders.toml --from 2026-11-01 --to 2026-11-08 --dry-run
  ottla pipeline backfill orders.toml --from 2026-11-01 --to 2026-11-08 --sink table
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    add_file(parser)
    add_cluster(parser)
    parser.add_argument(
        "--from", dest="since", type=parse_time, required=True, metavar="TIME", help="the first record (ISO 8601)"
    )
    parser.add_argument(
        "--to", dest="until", type=parse_time, metavar="TIME", help="only records before this time (default: all)"
    )
    parser.add_argument("--sink", action="append", metavar="NAME", help="only this sink; repeatable (default: all)")
    parser.add_argument("--dry-run", action="store_true", help="only show the offsets and count the rows")
    add_master_option(parser)
    add_conf_option(parser)
    add_json_option(parser)
    parser.set_defaults(run=run)


@reports_problems
def run(args: Namespace) -> int:
    pipeline = declared(args)
    sinks = chosen_sinks(pipeline, args.sink)
    if args.until is not None and args.until <= args.since:
        raise UsageError("--to must be after --from")
    conf = {name: value for name, value in pipeline.spark.items() if name != "spark.master"}
    with spark_session("ottla pipeline backfill", args.master, conf={**conf, **settings(args.conf)}) as spark:
        from ottla.spark.pipelines.backfill.plan import NotPossible
        from ottla.spark.pipelines.backfill.run import backfill

        note("reading the range ...")
        try:
            found = backfill(pipeline, spark, since=args.since, until=args.until, sinks=sinks, dry_run=args.dry_run)
        except NotPossible as error:
            print(f"ottla: error: {error}", file=sys.stderr)
            return WRONG
    if args.json:
        print_json([_as_json(one, dry_run=args.dry_run) for one in found])
    else:
        print("\n".join(line for one in found for line in _lines(one, dry_run=args.dry_run)))
    return 0


def _lines(one: Backfilled, *, dry_run: bool) -> list[str]:
    rows = [(part.topic, part.partition, part.start, part.end, part.offsets) for part in one.plan.ranges]
    shown = table(("TOPIC", "PARTITION", "FROM OFFSET", "TO OFFSET", "OFFSETS"), rows, indent="  ")
    broken = f", {plural(one.broken, 'broken record')} left out" if one.broken else ""
    done = "would be written" if dry_run else "written"
    notes = [f"  note: {text}" for text in one.plan.notes]
    return [f"{one.plan.sink}: {plural(one.rows, 'row')} {done}{broken}", shown, *notes]


def _as_json(one: Backfilled, *, dry_run: bool) -> dict[str, Any]:
    return {
        "sink": one.plan.sink,
        "written": not dry_run,
        "rows": one.rows,
        "broken": one.broken,
        "ranges": [
            {"topic": part.topic, "partition": part.partition, "from": part.start, "to": part.end}
            for part in one.plan.ranges
        ],
        "notes": list(one.plan.notes),
    }
