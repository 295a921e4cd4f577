"""``ottla pipeline reset FILE --sink NAME``: start sinks again from the beginning."""

from __future__ import annotations

import argparse
import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from ottla.cli.options import UsageError, add_json_option
from ottla.cli.pipeline.common import add_cluster, add_file, declared, reports_problems
from ottla.cli.terminal import print_json
from ottla.spark.pipelines import rule_counts
from ottla.spark.pipelines.declaration import Pipeline
from ottla.spark.pipelines.exit_codes import RUNS_ALREADY
from ottla.spark.pipelines.reset import FlowReset, plan_reset, reset
from ottla.spark.pipelines.run_lock import AlreadyRunning, run_lock
from ottla.spark.pipelines.status import flows_of
from ottla.suggestions import did_you_mean

_EPILOG = """\
The next run reads the records again from the start of the topics (or from starting_offsets). The checkpoint of the sink
and the table of a file sink are moved to a new name beside the old one, NAME.before-DATE; no file is deleted. The
commands to undo it are printed. Rows in topics and databases stay: the plan says what to do about them.

Stop the pipeline first. Other sinks are not affected. Never delete a checkpoint and keep its table: the next run would
refuse the table, because Spark skips the batch numbers that it already contains.

exit codes: 0 done; 1 failed, or not confirmed; 2 wrong usage or problems in the declaration; 3 the pipeline is running

examples:
  ottla pipeline reset orders.toml --sink table --dry-run
  ottla pipeline reset orders.toml --sink table
  ottla pipeline reset orders.toml --sink dead-letters.orders
  ottla pipeline reset orders.toml --all --yes
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    add_file(parser)
    add_cluster(parser)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--sink",
        action="append",
        metavar="NAME",
        help="a sink, or the dead letters of a source as dead-letters.SOURCE; repeatable",
    )
    which.add_argument("--all", action="store_true", help="all sinks and dead letters")
    parser.add_argument("--dry-run", action="store_true", help="only show what would be renamed")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    add_json_option(parser)
    parser.set_defaults(run=run)


@reports_problems
def run(args: Namespace) -> int:
    pipeline = declared(args)
    names = _chosen(args, pipeline)
    try:
        with run_lock(pipeline.path(pipeline.checkpoint)):
            return _reset(args, pipeline, names)
    except AlreadyRunning as error:
        print(f"ottla: error: {error}: stop it first", file=sys.stderr)
        return RUNS_ALREADY


def _reset(args: Namespace, pipeline: Pipeline, names: Sequence[str]) -> int:
    plan = plan_reset(pipeline, names)
    if args.json:
        print_json([_as_json(one) for one in plan])
    else:
        print("\n".join(line for one in plan for line in _lines(one)))
    if args.dry_run:
        return 0
    if not args.yes and not _confirmed():
        print("ottla: nothing was changed", file=sys.stderr)
        return 1
    reset(plan)
    rule_counts.forget(pipeline, names)
    if not args.json:
        undo = [f"  {command}" for one in plan for command in one.undo]
        undo += [f"  (in the catalog) rename {one.to} to {one.table}" for flow in plan for one in flow.renames]
        if undo:
            print("\n".join(["To undo this before the next run:", *undo]))
        print(f"done: the next run starts {', '.join(names)} again from the beginning")
    return 0


def _chosen(args: Namespace, pipeline: Pipeline) -> list[str]:
    known = [one.name for one in flows_of(pipeline)]
    if args.all:
        return known
    for name in args.sink:
        if name not in known:
            near = did_you_mean(name, known) or f" The sinks are {', '.join(known)}."
            raise UsageError(f"{args.file} has no sink {name}.{near}")
    return [name for name in known if name in args.sink]


def _confirmed() -> bool:
    if not sys.stdin.isatty():
        raise UsageError("add --yes to do this without a question, or --dry-run to only see it")
    return input("Go ahead? [y/N] ").strip().lower() in ("y", "yes")


def _lines(one: FlowReset) -> list[str]:
    moves = [f"  rename the {move.what} {move.path} to {move.to.name}" for move in one.moves]
    moves += [f"  rename the table {found.table} to {found.to} in its catalog" for found in one.renames]
    if one.leaves is not None:
        moves.append(f"  take it out of the shared read {one.leaves}")
    offsets = [
        f"  delete the committed offsets of group {found.group} for {', '.join(map(str, found.partitions))}"
        for found in one.offsets
    ]
    notes = [f"  note: {note}" for note in one.notes]
    return [f"{one.flow}:", *(moves or ["  nothing to rename: it has not run yet"]), *offsets, *notes]


def _as_json(one: FlowReset) -> dict[str, Any]:
    return {
        "flow": one.flow,
        "leaves": None if one.leaves is None else str(one.leaves),
        "moves": [{"what": move.what, "from": str(move.path), "to": str(move.to)} for move in one.moves],
        "deleted_offsets": [
            {"group": found.group, "partitions": [str(key) for key in found.partitions]} for found in one.offsets
        ],
        "renames": [{"from": found.table, "to": found.to} for found in one.renames],
        "notes": list(one.notes),
        "undo": one.undo,
    }
