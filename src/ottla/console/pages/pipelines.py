"""Pipelines: the graph, state, rates, batch times, watermarks, lag, rules, dead letters, replay and audit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.console.actions import action
from ottla.console.pages import pipeline_actions
from ottla.console.pages.pipeline_actions import AUDIT, REPLAY, file_of
from ottla.console.pipelines import Facts, PipelineFile, facts_of
from ottla.console.reading import Bounds, Limits, Task, find_bounds, read_newer
from ottla.console.render import part, render
from ottla.console.state import Access, access_of, console_of
from ottla.console.views.pipelines import Reason, audit_rows, by_reason, charts, shown, waiting_letters
from ottla.console.views.records import cursor, shown_record
from ottla.console.views.values import Lens, Room
from ottla.errors import KafkaError, OttlaError, UnknownTopicOrPartition
from ottla.spark.pipelines.declaration import Pipeline
from ottla.spark.pipelines.graph import draw
from ottla.spark.pipelines.status import dead_letter_topics, replay_group

SECONDS = 3.0
UNCHANGED = 60.0
PATIENCE = 3.0
"""How long a page waits for what brokers tell about a pipeline."""
MOST_LETTERS = 5_000
LETTERS = Limits(records=20_000, bytes=32 * 1024 * 1024, seconds=3.0)
MOST_REASONS = 30


async def show_all(request: Request) -> Response:
    console, access = console_of(request), access_of(request)
    files = await asyncio.to_thread(console.pipelines.files)
    found = await asyncio.gather(*(_facts(request, one) for one in files))
    now = access.now()
    rows = []
    for one, known in zip(files, found, strict=True):
        facts = None if known is None else known[0]
        rows.append((one, facts, None if facts is None else shown(facts.status, facts.run, now=now)))
    return render(request, "pipelines.html", rows=rows, given=console.settings.pipelines)


async def _facts(request: Request, file: PipelineFile) -> tuple[Facts, bool] | None:
    """What is known, and whether the brokers were asked; None if the file has problems."""
    if file.pipeline is None:
        return None
    read = partial(asyncio.get_running_loop().run_in_executor, console_of(request).asking, facts_of, file.pipeline)
    try:
        async with asyncio.timeout(PATIENCE):
            return await access_of(request).shared.get(("pipeline", str(file.path)), SECONDS, read), True
    except TimeoutError:
        return await asyncio.to_thread(facts_of, file.pipeline, ask=False), False


async def show(request: Request) -> Response:
    console, access = console_of(request), access_of(request)
    file = await file_of(request)
    pipeline = file.pipeline
    if pipeline is None:
        return render(
            request, "pipeline_problems.html", file=file, check=pipeline_actions.commands(request, file)["check"]
        )
    found = await _facts(request, file)
    assert found is not None
    facts, is_complete = found
    letters = await _letters(request, access, pipeline)
    jobs = [job for kind in (REPLAY, AUDIT) if (job := console.jobs.of(file.key, kind)) is not None]
    return render(
        request,
        "pipeline.html",
        file=file,
        pipeline=pipeline,
        facts=facts,
        is_complete=is_complete,
        shown=shown(facts.status, facts.run, now=access.now()),
        graph=draw(pipeline),
        charts=charts(facts.run),
        letters=letters,
        audits=[] if facts.audit is None else audit_rows(facts.audit.report),
        jobs=jobs,
        commands=pipeline_actions.commands(request, file),
        may_act=not console.settings.users,
        now=access.now(),
    )


@dataclass(frozen=True, slots=True)
class Letters:
    """The waiting dead letters of a topic."""

    topic: str
    exists: bool
    reasons: Sequence[Reason] = ()
    waiting: int = 0
    is_all: bool = True
    examples: Sequence[object] = ()
    problem: str | None = None


async def _letters(request: Request, access: Access, pipeline: Pipeline) -> list[Letters]:
    if pipeline.dead_letters is None:
        return []
    try:
        async with asyncio.timeout(PATIENCE):
            ask = asyncio.get_running_loop().run_in_executor
            topics = await ask(console_of(request).asking, dead_letter_topics, pipeline)
    except (TimeoutError, OttlaError):
        return []
    return [await _letters_of(request, access, topic) for topic in topics]


async def _letters_of(request: Request, access: Access, topic: str) -> Letters:
    try:
        info = await access.admin.cluster.topic(topic)
        bounds, starts = await _unread(access, topic, list(info.partitions))
        # As long as nothing was written or replayed, the letters are the same.
        key = ("letters", topic, cursor(starts), cursor(bounds.ends))
        return await access.shared.get(key, UNCHANGED, partial(_read_letters, request, access, topic, bounds, starts))
    except UnknownTopicOrPartition:
        return Letters(topic, False)
    except KafkaError as error:
        return Letters(topic, True, problem=str(error))


async def _read_letters(
    request: Request, access: Access, topic: str, bounds: Bounds, starts: dict[int, int]
) -> Letters:
    task = Task(topic=topic, isolation="read_committed", limit=MOST_LETTERS, limits=LETTERS)
    page = await read_newer(access.admin.cluster, task, bounds, starts)
    letters = waiting_letters(page.rows, topic)
    reasons = by_reason(letters)[:MOST_REASONS]
    console = console_of(request)
    lens = Lens(decode=None if console.decoder is None else console.decoder.decode)
    show_one = partial(shown_record, topic=topic, key=lens, value=lens, room=Room(600, 12))
    examples = await asyncio.to_thread(lambda: [show_one(one.row) for one in reasons])
    return Letters(topic, True, reasons, len(letters), page.at == bounds.ends, examples)


async def _unread(access: Access, topic: str, partitions: list[int]) -> tuple[Bounds, dict[int, int]]:
    """The bounds, and where the letters begin that were not replayed: at the offsets of the replay's group."""
    bounds = await find_bounds(access.admin.cluster, topic, partitions, "read_committed")
    try:
        committed = await access.admin.list_group_offsets(replay_group(topic))
        done = {key.partition: one.offset for key, one in committed.items() if key.topic == topic}
    except KafkaError:
        done = {}
    return bounds, {one: max(done.get(one, start), start) for one, start in bounds.starts.items()}


async def picture(request: Request) -> Response:
    """The graph as a file, as `ottla pipeline graph` writes it."""
    file = await file_of(request)
    if file.pipeline is None:
        raise HTTPException(404, "The file has problems, so there is no picture.")
    # Headers of HTTP are not Unicode.
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{part(file.key)}.svg"}
    return Response(draw(file.pipeline), media_type="image/svg+xml", headers=headers)


title, path = "Pipelines", "/pipelines"
routes = [
    Route("/pipelines", show_all),
    Route("/pipelines/{pipeline:name}", show),
    Route("/pipelines/{pipeline:name}/graph.svg", picture),
    action("/pipelines/{pipeline:name}/replay", pipeline_actions.replay),
    action("/pipelines/{pipeline:name}/audit", pipeline_actions.audit),
]
