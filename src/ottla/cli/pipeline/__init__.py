"""``ottla pipeline ACTION``: declared pipelines on Spark.

This module has `check`. Every other action has its own module.
"""

from __future__ import annotations

import argparse
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.cli.options import add_json_option, add_parser
from ottla.cli.pipeline import audit, backfill, graph, init, replay, reset, run, status, test
from ottla.cli.pipeline.common import add_cluster, add_file, declared
from ottla.cli.spark_session import spark_session
from ottla.cli.terminal import plural, print_json, table
from ottla.clients.admin.blocking import Admin
from ottla.spark.pipelines.checks.sql import syntax_problems
from ottla.spark.pipelines.compile import compile_pipeline
from ottla.spark.pipelines.declaration import DeclarationError, Declared, Pipeline, Problem, TopicSink
from ottla.spark.pipelines.exit_codes import WRONG
from ottla.spark.pipelines.runner import admin_config, reads
from ottla.spark.pipelines.spark_parser import NoParser
from ottla.spark.pipelines.status import dead_letter_topics, flows_of
from ottla.suggestions import hint

ASK_MS = 10_000
_CHECK_EPILOG = """\
All problems are reported at once as FILE:LINE: MESSAGE. SQL is checked for syntax errors. With --spark, Spark compiles
the pipeline without running it, which also finds unknown columns and functions and wrong types. It takes a few seconds;
`run` does the same before it reads the first record.

exit codes: 0 no problems; 1 the broker is not reachable (--connect), or Spark did not start (--spark); 2 problems found
"""


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    init.configure(add_parser(actions, "init", "write a pipeline from sample records of a topic"))
    _configure_check(add_parser(actions, "check", "find all problems in a declaration"))
    test.configure(add_parser(actions, "test", "run the stored test cases of pipelines"))
    run.configure(add_parser(actions, "run", "run a pipeline on Spark, with progress"))
    status.configure(add_parser(actions, "status", "show the progress of a pipeline, without Spark"))
    audit.configure(add_parser(actions, "audit", "check that all records are in the sinks or the dead letters"))
    replay.configure(add_parser(actions, "replay", "send dead letters back to their original topics"))
    backfill.configure(add_parser(actions, "backfill", "process a range of records again, into the same tables"))
    reset.configure(add_parser(actions, "reset", "start sinks again from the beginning"))
    graph.configure(add_parser(actions, "graph", "draw a pipeline as SVG, without Spark"))


def _configure_check(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _CHECK_EPILOG
    add_file(parser)
    add_cluster(parser)
    parser.add_argument("--connect", action="store_true", help="check that the topics exist on the broker")
    parser.add_argument("--spark", action="store_true", help="also compile the pipeline with Spark: columns and types")
    add_json_option(parser)
    parser.set_defaults(run=check)


@dataclass(slots=True)
class _Found:
    pipeline: Pipeline | None = None
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def check(args: Namespace) -> int:
    found = _Found()
    try:
        found.pipeline = declared(args)
    except DeclarationError as error:
        found.problems += error.problems
    if found.pipeline is not None:
        _check_sql(found.pipeline, found)
    if args.connect and found.pipeline is not None:
        _check_topics(found.pipeline, found)
    if args.spark and found.pipeline is not None and not found.problems:
        _compile(found.pipeline, found)
    if args.json:
        print_json(_as_json(found))
    else:
        _print(args, found)
    return WRONG if found.problems else 0


def _check_sql(pipeline: Pipeline, found: _Found) -> None:
    try:
        parts: list[Declared] = [*pipeline.sources, *pipeline.steps, *pipeline.expects, *pipeline.sinks]
        found.problems += syntax_problems(pipeline, parts)
    except NoParser as error:
        found.notes.append(f"the syntax of some SQL was not checked: {error}")


def _compile(pipeline: Pipeline, found: _Found) -> None:
    """Compile with a local session, without the pipeline's master, and start no query."""
    with spark_session(pipeline.name, "local[1]", fast=True, conf=_without_master(pipeline.spark)) as spark:
        try:
            compile_pipeline(pipeline, spark)
        except DeclarationError as error:
            found.problems += error.problems


def _without_master(settings: Mapping[str, str]) -> dict[str, str]:
    return {name: str(value) for name, value in settings.items() if name != "spark.master"}


def _check_topics(pipeline: Pipeline, found: _Found) -> None:
    """Report missing topics: a problem for sources, a note for sinks."""
    for source in pipeline.sources:
        there = _topics(pipeline, source)
        missing = [name for name in (*source.topics, *(source.assign or {})) if name not in there]
        key = "topics" if source.topics else "assign"
        found.problems += [
            source.where.problem(
                f"source {source.name}: topic {name} does not exist on the broker{hint(name, there)}", key
            )
            for name in missing
        ]
        if source.pattern is not None and not any(reads(source, name) for name in there):
            found.notes.append(f"source {source.name}: no topic matches the pattern {source.pattern} yet")
    written = [(f"sink {sink.name}", sink, [sink.topic]) for sink in pipeline.sinks if isinstance(sink, TopicSink)]
    letters = [] if pipeline.dead_letters is None else [pipeline.dead_letters]
    for part, declaration, names in [
        *written,
        *(("dead letters", one, dead_letter_topics(pipeline)) for one in letters),
    ]:
        there = _topics(pipeline, declaration)
        found.notes += [
            f"{part}: topic {name} does not exist yet; the broker creates it if auto.create.topics.enable is true"
            for name in names
            if name not in there
        ]


def _topics(pipeline: Pipeline, part: Any) -> set[str]:
    with Admin({**admin_config(pipeline, part), "default.api.timeout.ms": ASK_MS}) as admin:
        return set(admin.list_topics(list_internal=True))


def _print(args: Namespace, found: _Found) -> None:
    for problem in found.problems:
        print(problem, file=sys.stderr)
    if found.problems:
        print(f"{args.file}: {plural(len(found.problems), 'problem')}", file=sys.stderr)
        return
    assert found.pipeline is not None, "no problems were found"
    print(f"{args.file} is valid: {', '.join(_counts(found.pipeline))}")
    print(table(("FLOW", "CHECKPOINT"), [[one.name, one.directory] for one in flows_of(found.pipeline)]))
    for note in found.notes:
        print(f"note: {note}")


def _counts(pipeline: Pipeline) -> Iterator[str]:
    for noun, parts in (
        ("source", pipeline.sources),
        ("table", pipeline.tables),
        ("step", pipeline.steps),
        ("rule", pipeline.expects),
        ("sink", pipeline.sinks),
    ):
        if parts:
            yield plural(len(parts), noun)


def _as_json(found: _Found) -> dict[str, Any]:
    flows = [] if found.pipeline is None else flows_of(found.pipeline)
    return {
        "pipeline": None if found.pipeline is None else found.pipeline.name,
        "problems": [{"file": one.file, "line": one.line, "message": one.message} for one in found.problems],
        "notes": found.notes,
        "flows": [{"name": one.name, "checkpoint": one.directory, "shares": one.shares} for one in flows],
    }
