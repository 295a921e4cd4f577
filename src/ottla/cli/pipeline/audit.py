"""``ottla pipeline audit FILE``: check that the records of the sources are in the sinks or the dead letters."""

from __future__ import annotations

import argparse
import sys
import time
from argparse import Namespace
from typing import TYPE_CHECKING

from ottla.cli.audit import FOUND_SOMETHING, NOT_DONE
from ottla.cli.options import add_conf_option, add_json_option, add_master_option, not_negative, settings
from ottla.cli.pipeline.common import add_cluster, add_file, chosen_sinks, declared, reports_problems
from ottla.cli.spark_session import spark_session
from ottla.cli.terminal import note, print_json
from ottla.errors import OttlaError
from ottla.spark.pipelines.audit.stored import StoredAudit, save
from ottla.spark.pipelines.declaration import Pipeline
from ottla.times import parse_time

if TYPE_CHECKING:
    from ottla.spark.pipelines.audit.report import PipelineAudit

_EPILOG = """\
The declaration says what to compare: topics, sinks, dead letters, checkpoints, the keys of a dedupe, and the rules and
steps that remove records. The pipeline may be running. A sink is audited if its rows have the columns _topic,
_partition and _offset (parquet, orc, delta and iceberg keep them by default; set origin = true for json, databases and
topics). docs/audit.md explains the counts, and what the audit cannot know.

exit codes:
  0  nothing lost or repeated    1  problems found    2  wrong usage or declaration    3  the audit failed, or no sink
                                                                                          could be audited
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    add_file(parser)
    add_cluster(parser)
    parser.add_argument("--sink", action="append", metavar="NAME", help="audit only this sink; repeatable")
    parser.add_argument(
        "--since", type=parse_time, metavar="TIME", help="only records at or after this time (ISO 8601)"
    )
    parser.add_argument("--until", type=parse_time, metavar="TIME", help="only records before this time")
    parser.add_argument(
        "--examples", type=not_negative, default=10, metavar="N", help="show N examples of each kind (default: 10)"
    )
    add_master_option(parser)
    add_conf_option(parser)
    add_json_option(parser)
    parser.set_defaults(run=run)


@reports_problems
def run(args: Namespace) -> int:
    pipeline = declared(args)
    chosen = chosen_sinks(pipeline, args.sink)
    conf = {name: value for name, value in pipeline.spark.items() if name != "spark.master"}
    try:
        with spark_session("ottla pipeline audit", args.master, conf={**conf, **settings(args.conf)}) as spark:
            from ottla.spark.pipelines.audit.run import audit_pipeline

            note("reading all sides ...")
            found = audit_pipeline(
                pipeline, spark, sinks=chosen, since=args.since, until=args.until, limit=args.examples
            )
    except OttlaError as error:
        # Exit code 1 means that the audit found problems.
        print(f"ottla: error: {' '.join(str(error).split())}", file=sys.stderr)
        return NOT_DONE
    _save(args, pipeline, found)
    if args.json:
        print_json(found.to_json())
    else:
        print(found)
    if not found.audits:
        return NOT_DONE
    return 0 if found.ok else FOUND_SOMETHING


def _save(args: Namespace, pipeline: Pipeline, found: PipelineAudit) -> None:
    """Keep the report for the console; an audit is not wrong because it could not be kept."""
    report = StoredAudit(
        time.time_ns() // 1_000_000, found.to_json(), str(found), args.sink or [], args.since, args.until
    )
    try:
        save(pipeline, report)
    except OttlaError as error:
        note(f"the report was not stored: {error}")
