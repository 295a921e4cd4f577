"""``ottla pipeline check|run|status|replay FILE``: declared pipelines on Spark.

Here is the check; the larger actions have modules of their own: pipeline_run, pipeline_status and pipeline_replay.
"""

from __future__ import annotations

import argparse
import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ottla.cli import pipeline_replay, pipeline_run, pipeline_status
from ottla.cli.pipeline_common import WRONG, add_cluster, add_file, declared
from ottla.cli.terminal import plural, print_json, table
from ottla.clients.admin.blocking import Admin
from ottla.spark.pipelines.declaration import DeclarationError, Pipeline, Problem, TopicSink
from ottla.spark.pipelines.runner import admin_config, reads
from ottla.spark.pipelines.status import dead_letter_topics, flows_of

ASK_MS = 10_000
_CHECK_EPILOG = """\
Everything that is wrong is told at once, as FILE:LINE: what, without starting Spark. What only Spark knows (columns in
SQL, types) is checked by `run` before the first record is read.

exit codes: 0 it is right; 1 the broker cannot be asked (--connect); 2 there are problems
"""


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    _configure_check(_add(actions, "check", "tell everything that is wrong with a declaration"))
    pipeline_run.configure(_add(actions, "run", "run a pipeline on Spark, with progress"))
    pipeline_status.configure(_add(actions, "status", "show how far a pipeline is, without Spark"))
    pipeline_replay.configure(_add(actions, "replay", "send dead letters back to the topics that they came from"))


def _add(actions: Any, name: str, summary: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=summary, description=f"{summary[0].upper()}{summary[1:]}."
    )
    return parser


def _configure_check(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _CHECK_EPILOG
    add_file(parser)
    add_cluster(parser)
    parser.add_argument("--connect", action="store_true", help="ask the broker whether the topics exist")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
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
    if args.connect and found.pipeline is not None:
        _ask(found.pipeline, found)
    if args.json:
        print_json(_as_json(found))
    else:
        _print(args, found)
    return WRONG if found.problems else 0


def _ask(pipeline: Pipeline, found: _Found) -> None:
    """Topics that are read must be there; those that are written may come."""
    for source in pipeline.sources:
        there = _topics(pipeline, source)
        missing = [name for name in (*source.topics, *(source.assign or {})) if name not in there]
        key = "topics" if source.topics else "assign"
        found.problems += [
            source.problem(f"source {source.name}: there is no topic {name} on the broker", key) for name in missing
        ]
        if source.pattern is not None and not any(reads(source, name) for name in there):
            found.notes.append(f"source {source.name}: no topic matches the pattern {source.pattern} now")
    written = [(f"sink {sink.name}", sink, [sink.topic]) for sink in pipeline.sinks if isinstance(sink, TopicSink)]
    letters = [] if pipeline.dead_letters is None else [pipeline.dead_letters]
    for part, declaration, names in [
        *written,
        *(("dead letters", one, dead_letter_topics(pipeline)) for one in letters),
    ]:
        there = _topics(pipeline, declaration)
        found.notes += [
            f"{part}: there is no topic {name} yet; the broker makes it if auto.create.topics.enable is true"
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
    assert found.pipeline is not None, "there would be problems"
    print(f"{args.file} is right: {', '.join(_counts(found.pipeline))}")
    print(table(("FLOW", "CHECKPOINT"), [[name, directory] for name, directory, _ in flows_of(found.pipeline)]))
    for note in found.notes:
        print(f"note: {note}")


def _counts(pipeline: Pipeline) -> Iterator[str]:
    for noun, parts in (
        ("source", pipeline.sources),
        ("table", pipeline.tables),
        ("step", pipeline.steps),
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
        "flows": [{"name": name, "checkpoint": directory} for name, directory, _ in flows],
    }
