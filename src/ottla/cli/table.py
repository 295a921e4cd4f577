"""``ottla table optimize TABLE…``: compact Delta and Iceberg tables, and delete what they no longer need."""

from __future__ import annotations

import argparse
import importlib.util
import os
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.cli.options import (
    BOOTSTRAP_VARIABLE,
    UsageError,
    add_json_option,
    add_parser,
    parse_setting,
    positive,
    settings,
)
from ottla.cli.terminal import plural, print_json
from ottla.config.secrets import resolved
from ottla.errors import OttlaError

if TYPE_CHECKING:
    from ottla.spark.pipelines.lakes.delta import DeltaLake
    from ottla.spark.pipelines.lakes.iceberg import IcebergLake

DEFAULT_HOURS = 168
DEFAULT_MEGABYTES = 128
_PIPELINES = (".toml", ".py")
_EPILOG = f"""\
A pipeline writes at least one file per micro-batch, and many small files make readers slow. This command joins them to
larger ones. Pipelines may go on writing to the table: if two commits meet, one of them is repeated. Queries that read
the table see the same rows before and after.

TABLE is the path or URL of a Delta table, the name of an Iceberg table (with --catalog), or the file of a pipeline. All
Delta and Iceberg sinks of a pipeline are optimized, with the catalogs, storage options and secrets of the file.

--vacuum deletes files that the table has not had for so many hours, and those that killed processes have left. Readers
of older versions need these files, so keep more hours than your longest query or time travel takes (default:
{DEFAULT_HOURS}). For Iceberg, it also forgets the older snapshots.

examples:
  ottla table optimize orders.toml
  ottla table optimize tables/orders --vacuum
  ottla table optimize s3://lake/orders --storage aws_region=eu-central-1 --vacuum 48
  ottla table optimize shop.orders --catalog type=rest --catalog uri=http://localhost:8181
"""


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    _configure_optimize(add_parser(actions, "optimize", "compact small files, and delete old ones with --vacuum"))


def _configure_optimize(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument(
        "tables", nargs="+", metavar="TABLE", help="a Delta or Iceberg table, or the file of a pipeline"
    )
    parser.add_argument(
        "--catalog",
        action="append",
        type=parse_setting,
        metavar="NAME=VALUE",
        help="a property of pyiceberg's catalog, such as type=sql; repeatable",
    )
    parser.add_argument(
        "--storage",
        action="append",
        type=parse_setting,
        metavar="NAME=VALUE",
        help="an option of the object store; write secrets as ${env:NAME} or ${file:path}; repeatable",
    )
    parser.add_argument(
        "--vacuum",
        nargs="?",
        type=positive,
        const=DEFAULT_HOURS,
        metavar="HOURS",
        help=f"delete files that were not needed for so long (default: {DEFAULT_HOURS})",
    )
    parser.add_argument(
        "--file-size",
        type=positive,
        default=DEFAULT_MEGABYTES,
        metavar="MB",
        help=f"how large files become (default: {DEFAULT_MEGABYTES})",
    )
    add_json_option(parser)
    parser.set_defaults(run=optimize)


def optimize(args: Namespace) -> int:
    from ottla.spark.pipelines.lakes import optimizing

    found = []
    for lake in [lake for name in args.tables for lake in _lakes(args, name)]:
        done = optimizing.optimize(lake, target_bytes=args.file_size << 20, vacuum_hours=args.vacuum)
        found.append(done)
        if not args.json:
            deleted = "" if done.deleted is None else f", {plural(done.deleted, 'file')} deleted"
            print(
                f"{done.table.removeprefix('the ')}: {done.files_before} → {plural(done.files_after, 'file')}{deleted}"
            )
    if args.json:
        print_json([asdict(one) for one in found])
    return 0


def _lakes(args: Namespace, name: str) -> Iterator[DeltaLake | IcebergLake]:
    catalog, storage = resolved(settings(args.catalog)), resolved(settings(args.storage))
    if name.endswith(_PIPELINES) and Path(name).is_file():
        if catalog or storage:
            raise UsageError(
                f"{name} is a pipeline, which has its own catalogs and storage: remove --catalog and --storage"
            )
        yield from _of_pipeline(name)
    elif catalog:
        _require("pyiceberg", "iceberg")
        from ottla.spark.pipelines.lakes.iceberg import IcebergLake

        yield IcebergLake(name, catalog, storage)
    else:
        _require("deltalake", "delta")
        from ottla.spark.pipelines.lakes.delta import DeltaLake

        if "://" not in name and not Path(name).is_dir():
            raise OttlaError(f"there is no Delta table {name}. For an Iceberg table, add --catalog")
        yield DeltaLake(name if "://" in name else str(Path(name).resolve()), storage)


def _of_pipeline(name: str) -> Iterator[DeltaLake | IcebergLake]:
    from ottla.spark.pipelines.declaration import LakeSink
    from ottla.spark.pipelines.lakes.opening import open_lake
    from ottla.spark.pipelines.loading import load

    pipeline = load(Path(name), default_servers=os.environ.get(BOOTSTRAP_VARIABLE) or None)
    sinks = [sink for sink in pipeline.sinks if isinstance(sink, LakeSink)]
    if not sinks:
        raise OttlaError(f"{name} has no sink with format delta or iceberg")
    yield from (open_lake(pipeline, sink) for sink in sinks)


def _require(package: str, extra: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise OttlaError(f"this needs {package}: pip install 'ottla[{extra}]'")
