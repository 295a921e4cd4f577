"""The overview: how the cluster is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.charts import Line, line_chart
from ottla.console.collector import Collector
from ottla.console.render import render
from ottla.console.state import access_of, console_of
from ottla.console.views.overview import NAMED, broker_rows, health, lagging_groups

if TYPE_CHECKING:
    from ottla.console.pipelines import PipelineFile
    from ottla.console.views.pipelines import Shown

LARGEST_LAGS = 20
PIPELINES_FOR = 5.0
"""Seconds for which the files of pipelines are not read again."""
EMPTY = "Empty"


async def show(request: Request) -> Response:
    access = access_of(request)
    snapshot = await access.collector.current()
    metadata, rates, rows = snapshot.metadata, snapshot.rates, snapshot.rows
    lagging = None
    if rows is not None:
        empty = {one.group_id for one in snapshot.groups or () if one.state == EMPTY}
        lagging = lagging_groups(rows, now=access.now(), since=snapshot.watched_since, empty=empty)
    return render(
        request,
        "overview.html",
        snapshot=snapshot,
        brokers=None if metadata is None else broker_rows(metadata, snapshot.controller),
        health=None if metadata is None else health(metadata),
        named=NAMED,
        throughput=None if rates is None else sum(rates.values()),
        history=_throughput(access.collector),
        groups=None if rows is None else len({group for group, _ in rows}),
        lagging=lagging,
        shown=LARGEST_LAGS,
        pipelines=await _pipelines(request),
    )


async def _pipelines(request: Request) -> list[tuple[PipelineFile, Shown]] | None:
    """The pipelines that need somebody: stalled, failed or crashed. None if the console knows of no pipelines."""
    console, access = console_of(request), access_of(request)
    if not console.settings.pipelines:
        return None
    # Whoever has no pipelines does not wait for what they import.
    from ottla.console.pipelines import facts_of
    from ottla.console.views.pipelines import shown

    now = access.now()

    def read() -> list[tuple[PipelineFile, Shown]]:
        # The progress beside the checkpoints is enough. Asking brokers would take the overview longer.
        known = [(one, facts_of(one.pipeline, ask=False)) for one in console.pipelines.files() if one.pipeline]
        return [(one, shown(facts.status, facts.run, now=now)) for one, facts in known]

    found = await access.shared.get("pipelines of the overview", PIPELINES_FOR, lambda: asyncio.to_thread(read))
    return [(one, state) for one, state in found if state.mark == "bad"]


def _throughput(collector: Collector) -> str | None:
    points = list(collector.throughput)
    if len(points) < 3:
        return None
    line = Line("records/s", points)
    return line_chart(title="Throughput", subtitle="records written per second", lines=[line], unit="records/s")


title, path = "Overview", "/"
routes = [Route("/", show)]
