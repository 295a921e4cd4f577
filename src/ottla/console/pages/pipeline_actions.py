"""Replay dead letters and run an audit. Both run the command that they show, in a process of its own."""

from __future__ import annotations

import asyncio

from starlette.exceptions import HTTPException
from starlette.requests import Request

from ottla.console.actions import Field, Form, Plan, Values, shown_command
from ottla.console.pipelines import PipelineFile
from ottla.console.render import part, plural
from ottla.console.state import access_of, console_of
from ottla.console.views.commands import option
from ottla.console.views.paging import whole
from ottla.errors import OttlaError, UnknownTopicOrPartition
from ottla.spark.pipelines.declaration import Pipeline
from ottla.spark.pipelines.replay import MAX_REPLAYS, Choice, Replay
from ottla.spark.pipelines.replay import Plan as ReplayPlan
from ottla.spark.pipelines.runner import client_config
from ottla.spark.pipelines.status import dead_letter_topics, replay_group

REPLAY, AUDIT = "replay", "audit"
SOON = 2.0
"""How long a confirmed action waits for the end of its command, to tell the result at once."""


async def file_of(request: Request) -> PipelineFile:
    """The pipeline of a request."""
    console = console_of(request)
    key = request.path_params["pipeline"]
    file = await asyncio.to_thread(console.pipelines.find, key)
    if file is None:
        raise HTTPException(404, f"There is no pipeline {key}: name its file with --pipelines.")
    return file


def commands(request: Request, file: PipelineFile) -> dict[str, str]:
    """The commands that a page shows."""
    return {
        name: shown_command(request, ["pipeline", name, str(file.path), *more], own_cluster=not file.is_of_console)
        for name, more in (("run", ()), ("check", ()), ("status", ()), ("audit", ()), ("replay", ("--dry-run",)))
    }


def _check_may_act(request: Request) -> None:
    """A user of the brokers must not act with the rights of a pipeline."""
    if console_of(request).settings.users:
        raise HTTPException(
            403,
            "A pipeline has its own rights on the cluster, so people who log in as users of the brokers cannot do this "
            "here. Run the command instead.",
        )


async def replay(request: Request, values: Values) -> Plan | Form:
    _check_may_act(request)
    file = await file_of(request)
    back = f"/pipelines/{part(file.key)}"
    pipeline = file.pipeline
    if pipeline is None or pipeline.dead_letters is None:
        raise HTTPException(404, "This pipeline declares no dead letters.")
    if "max_replays" not in values:
        return _form(values, back)
    limit, most = values.get("limit", "").strip(), values["max_replays"].strip()
    count, replays = whole(limit), whole(most)
    if (limit and not count) or replays is None:
        return _form(values, back, "give whole numbers")
    error, topic = values.get("error", "").strip() or None, values.get("from_topic", "").strip() or None
    choice = Choice(error, topic, max_replays=replays)
    try:
        plan = await asyncio.to_thread(_planned, pipeline, choice, count)
    except OttlaError as problem:
        return _form(values, back, str(problem))
    options = [
        *(option("--error", error) if error else []),
        *(option("--from-topic", topic) if topic else []),
        *(["--limit", limit] if limit else []),
        *(["--max-replays", most] if replays != MAX_REPLAYS else []),
    ]
    command = ["pipeline", "replay", str(file.path), *options]
    effects = [f"{plural(sum(one.chosen for one in plan), 'dead letter')} will be sent back to their original topics."]
    effects += [
        f"{plural(count, 'dead letter')} will stay: {reason}." for one in plan for reason, count in one.left.items()
    ]
    rows = [[topic, count] for one in plan for topic, count in sorted(one.by_topic.items())]
    return Plan(
        f"Replay dead letters of {pipeline.name}",
        [*effects, "Each one is sent exactly once, in a transaction. The pipeline reads it again like a new record."],
        command,
        lambda: _start(request, file, REPLAY, command),
        button="Replay",
        back=back,
        table=(["To topic", "Dead letters"], rows) if rows else None,
        own_cluster=not file.is_of_console,
    )


def _planned(pipeline: Pipeline, choice: Choice, limit: int | None) -> list[ReplayPlan]:
    """A dry run over all dead letter topics."""
    found: list[ReplayPlan] = []
    config = client_config(pipeline, pipeline.dead_letters)
    for topic in dead_letter_topics(pipeline):
        left = None if limit is None else max(limit - sum(one.chosen for one in found), 0)
        with Replay([topic], group=replay_group(topic), config=config) as replay:
            try:
                found.append(replay.plan(choice, limit=left))
            except UnknownTopicOrPartition:
                continue
    return found


def _form(values: Values, back: str, problem: str | None = None) -> Form:
    return Form(
        "Replay dead letters",
        [
            Field("error", "Only errors with this text", values.get("error", "")),
            Field("from_topic", "Only from this topic", values.get("from_topic", "")),
            Field("limit", "At most", values.get("limit", ""), "number"),
            Field(
                "max_replays",
                "Skip letters that were replayed so often already",
                values.get("max_replays", str(MAX_REPLAYS)),
                "number",
                required=True,
            ),
        ],
        problem,
        "Fix what was wrong with the records or the pipeline first: otherwise they become dead letters again.",
        back=back,
    )


async def audit(request: Request, values: Values) -> Plan | Form:
    _check_may_act(request)
    file = await file_of(request)
    if file.pipeline is None:
        raise HTTPException(404, "The file of this pipeline has problems: fix them first.")
    command = ["pipeline", "audit", str(file.path)]
    return Plan(
        f"Audit {file.pipeline.name}",
        [
            "A Spark of its own compares the records of the sources with the sinks and the dead letters.",
            "It reads all of them and changes nothing. The pipeline may be running.",
        ],
        command,
        lambda: _start(request, file, AUDIT, command),
        button="Run the audit",
        back=f"/pipelines/{part(file.key)}",
        own_cluster=not file.is_of_console,
    )


async def _start(request: Request, file: PipelineFile, kind: str, command: list[str]) -> str:
    console = console_of(request)
    connection = console.settings.arguments if file.is_of_console else ()
    job = console.jobs.start(file.key, kind, f"{kind} of {file.name}", [*command, *connection])
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SOON
    while job.code is None and loop.time() < deadline:
        await asyncio.sleep(0.1)
    shared = access_of(request).shared
    shared.forget_all()
    if job.code is None:
        return f"The {kind} runs. This page shows its output."
    last = job.lines[-1] if job.lines else ""
    if job.code:
        return f"The {kind} ended with exit code {job.code}: {last}"
    return f"The {kind} is done. {' '.join(job.lines)[:300]}"
