"""``ottla sql QUERY``: query topics with Spark SQL. Every topic named in the query is a table."""

from __future__ import annotations

import argparse
import json
import sys
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from ottla.cli.options import (
    add_bootstrap_option,
    add_master_option,
    client_config,
    parse_setting,
    positive,
    settings,
)
from ottla.cli.spark_session import spark_options, spark_session
from ottla.cli.terminal import note, table
from ottla.clients.admin.blocking import Admin
from ottla.config.admin import AdminConfig
from ottla.config.table import rows
from ottla.spark.views import make_views, named_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_EPILOG = """\
examples:
  ottla sql "SELECT * FROM orders ORDER BY timestamp DESC" --limit 10
  ottla sql "SELECT partition, count(*), max(offset) FROM orders GROUP BY partition"
  ottla sql "SELECT get_json_object(value, '$.customer') AS customer, count(*) FROM \\`my-orders\\` GROUP BY 1" --json

A topic is a table with the columns key, value (both text), topic, partition, offset, timestamp, timestampType and
headers. Put names with other characters than letters, digits and _ in backticks. The shell runs what is in backticks
within double quotes: write \\` there.
Requires pip install 'ottla[spark]'.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("query", metavar="QUERY", help="a Spark SQL query with topics as tables")
    add_bootstrap_option(parser)
    parser.add_argument(
        "-n", "--limit", type=positive, default=100, metavar="N", help="print at most N rows (default: 100)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per row")
    parser.add_argument("--bytes", action="store_true", help="do not decode keys and values as text")
    parser.add_argument(
        "--option",
        type=parse_setting,
        action="append",
        metavar="NAME=VALUE",
        help="a data source option, such as startingTimestamp=1700000000000; repeatable",
    )
    add_master_option(parser)
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    config = client_config(args)
    with Admin({name: value for name, value in config.items() if name in rows(AdminConfig)}) as admin:
        topics = named_in(args.query, admin.list_topics(list_internal=True))
    with spark_session("ottla sql", args.master, fast=args.master.startswith("local")) as spark:
        make_views(spark, topics, {**spark_options(args), **settings(args.option)}, as_text=not args.bytes)
        _print(spark.sql(args.query), args)
    return 0


def _print(frame: DataFrame, args: Namespace) -> None:
    rows = frame.limit(args.limit + 1).collect()
    shown = rows[: args.limit]
    if args.json:
        for row in shown:
            sys.stdout.write(json.dumps(row.asDict(recursive=True), default=_plain, ensure_ascii=False) + "\n")
    else:
        print(table(frame.columns, [[_cell(value) for value in row] for row in shown]))
    if len(rows) > len(shown):
        note(f"more than {args.limit} rows: use --limit to see more")


def _plain(value: Any) -> str:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    return str(value)


def _cell(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | list | dict):
        return _plain(value) if isinstance(value, bytes | bytearray) else str(value)
    return value
