"""``ottla sql QUERY``: a look at topics with Spark SQL. Every topic that the query names is a table."""

from __future__ import annotations

import argparse
import json
import sys
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from ottla.cli.options import add_bootstrap_option, client_config, parse_setting, positive, settings
from ottla.cli.terminal import note, table
from ottla.clients.admin.blocking import Admin
from ottla.config.admin import AdminConfig
from ottla.config.table import rows
from ottla.errors import OttlaError
from ottla.spark.sessions import session
from ottla.spark.views import make_views, named_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_EPILOG = """\
examples:
  ottla sql "SELECT * FROM orders ORDER BY timestamp DESC" --limit 10
  ottla sql "SELECT partition, count(*), max(offset) FROM orders GROUP BY partition"
  ottla sql "SELECT get_json_object(value, '$.customer') AS customer, count(*) FROM `my-orders` GROUP BY 1" --json

A topic is a table with the columns key, value (both text), topic, partition, offset, timestamp, timestampType and
headers. Names with other signs than letters, digits and _ stand in backquotes. Needs pip install 'ottla[spark]'.
"""


class QueryError(OttlaError):
    """Spark cannot run the query."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument("query", metavar="QUERY", help="a query of Spark SQL, with topics as tables")
    add_bootstrap_option(parser)
    parser.add_argument("-n", "--limit", type=positive, default=100, metavar="N", help="print at most N rows (100)")
    parser.add_argument("--json", action="store_true", help="print a JSON object a row")
    parser.add_argument("--bytes", action="store_true", help="keep keys and values as bytes")
    parser.add_argument(
        "--option",
        type=parse_setting,
        action="append",
        metavar="NAME=VALUE",
        help="an option of the data source, such as startingTimestamp=1700000000000",
    )
    parser.add_argument("--master", default="local[*]", metavar="URL", help="the master of a Spark cluster (local[*])")
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    config = client_config(args)
    with Admin({name: value for name, value in config.items() if name in rows(AdminConfig)}) as admin:
        topics = named_in(args.query, admin.list_topics(list_internal=True))
    note("starting Spark ...")
    try:
        spark = session("ottla sql", master=args.master, log_level="fatal", fast=args.master.startswith("local"))
    except ImportError as error:
        raise QueryError(str(error)) from None
    from pyspark.errors import PySparkException

    servers = config["bootstrap.servers"]
    options = {f"kafka.{name}": str(value) for name, value in config.items()}
    options["kafka.bootstrap.servers"] = ",".join(servers) if isinstance(servers, list) else str(servers)
    try:
        make_views(spark, topics, {**options, **settings(args.option)}, as_text=not args.bytes)
        _print(spark.sql(args.query), args)
    except PySparkException as error:
        raise QueryError(_told(error)) from None
    finally:
        spark.stop()
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
        note(f"there are more than {args.limit} rows: see --limit")


def _plain(value: Any) -> str:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    return str(value)


def _cell(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | list | dict):
        return _plain(value) if isinstance(value, bytes | bytearray) else str(value)
    return value


def _told(error: Any) -> str:
    """What is wrong, without the plan and the stack that Spark adds."""
    text = str(error)
    reason = [line for line in text.splitlines() if line.startswith("ottla.") and ": " in line]
    return reason[-1].partition(": ")[2] if reason else text.split("\n\n")[0].split("; line ")[0].split(";\n")[0]
