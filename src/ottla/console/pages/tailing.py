"""Follow the new records of a topic, as server-sent events.

Once per second the newest records go to the browser, up to a number; how many were left out is told. So neither a fast
topic nor a slow browser makes the console keep more than one such page. It ends when the browser goes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from ottla.console.live import ALIVE, event, events
from ottla.console.reading import Bounds, Limits, Task, find_bounds, no_leaders, read_older, with_leaders
from ottla.console.render import fragment, part
from ottla.console.security import is_still_known
from ottla.console.state import Access, access_of, console_of
from ottla.console.views.records import BadQuery, Query, Row, Search, ShownRecord, cursor, read_query
from ottla.errors import KafkaError

PERIOD = 1.0
REST = 9
"""How many times as long as asking for the ends of partitions a stream rests, at least."""
MOST_ROWS = 50
"""Rows in one event."""
LIMITS = Limits(records=20_000, bytes=16 * 1024 * 1024, seconds=1.0)

Show: TypeAlias = Callable[[Request, str, list[Row], Query], Awaitable[list[ShownRecord]]]


async def tail(show: Show, request: Request) -> Response:
    """The stream of a topic's new records; `at` goes on where an earlier stream has ended."""
    topic = request.path_params["topic"]
    access = access_of(request)
    info = await access.admin.cluster.topic(topic)
    given = dict(request.query_params)
    given["at"] = request.headers.get("last-event-id", "") or given.get("at", "")
    try:
        query = read_query(given, request.query_params.getlist("in"))
    except BadQuery as error:
        return PlainTextResponse(f"{error}\n", 400)
    partitions = [one for one in info.partitions if query.partitions is None or one in query.partitions]
    stream = _stream(show, request, access, topic, partitions, query)
    return events(request, stream, console_of(request).tails)


async def _stream(
    show: Show, request: Request, access: Access, topic: str, partitions: list[int], query: Query
) -> AsyncIterator[str]:
    cluster, loop = access.admin.cluster, asyncio.get_running_loop()
    task = Task(topic=topic, isolation=query.isolation, search=Search.of(query), limit=MOST_ROWS, limits=LIMITS)
    positions, told = dict[int, int](), list[int]()
    said = loop.time()
    yield event("hello")
    while not access.collector.closed and is_still_known(request):
        began = loop.time()
        pause = PERIOD
        try:
            there, away = with_leaders(cluster.metadata, topic, partitions)
            if away != told:
                told = away
                yield event("problem", no_leaders(away)) if away else event("hello")
            bounds = await find_bounds(cluster, topic, there, query.isolation)
            # With thousands of partitions the ends alone take a while.
            pause = max(PERIOD, REST * (loop.time() - began))
            positions = {**_begin(bounds, query), **positions}
            ahead = Bounds({one: min(positions[one], end) for one, end in bounds.ends.items()}, bounds.ends)
            if ahead.records:
                page = await read_older(cluster, task, ahead, ahead.ends)
                left = sum(page.before[one] - ahead.starts[one] for one in ahead.starts)
                shown = await show(request, topic, page.rows, query)
                positions, said = {**positions, **ahead.ends}, loop.time()
                yield _event(topic, shown[::-1], left, query, positions)
        except KafkaError as error:
            yield event("problem", str(error))
        if loop.time() - said > ALIVE:
            said = loop.time()
            yield ": alive\n\n"
        await asyncio.sleep(pause)


def _begin(bounds: Bounds, query: Query) -> dict[int, int]:
    """The end, or where an earlier stream has ended."""
    at = query.at or {}
    return {one: min(max(at.get(one, end), bounds.starts[one]), end) for one, end in bounds.ends.items()}


def _event(topic: str, shown: list[ShownRecord], left: int, query: Query, positions: dict[int, int]) -> str:
    base = f"/topics/{part(topic)}/records"
    rows = fragment("record_rows.html", records=shown, base=base, query=query, left=left)
    return f"id: {cursor(positions)}\n{event('records', rows)}"
