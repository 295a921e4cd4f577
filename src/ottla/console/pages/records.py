"""The records of a topic: from an offset, a time or the end, with search, one record as a whole, and producing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.clients.cluster.cluster import Cluster
from ottla.console.pages import producing, tailing
from ottla.console.reading import (
    Bounds,
    Page,
    Task,
    find_bounds,
    no_leaders,
    offsets_at,
    read_newer,
    read_older,
    read_one,
    with_leaders,
)
from ottla.console.render import number_in, part, path_in, render, with_query
from ottla.console.state import access_of, console_of
from ottla.console.views.records import (
    PLACES,
    STARTS,
    BadQuery,
    Query,
    Row,
    Search,
    ShownRecord,
    read_query,
    shown_record,
)
from ottla.console.views.values import FORMATS, LIST, WHOLE, Lens, Room
from ottla.errors import UnknownTopicOrPartition

MOST_PARTITIONS = 200
"""How many partitions a page reads at once."""
MOST_TOPICS = 200


async def choose(request: Request) -> Response:
    """The topics whose records can be looked at."""
    snapshot = await access_of(request).collector.current()
    wanted = request.query_params.get("q", "")
    names = [] if snapshot.metadata is None else sorted(snapshot.metadata.topics)
    found = [name for name in names if wanted.lower() in name.lower()]
    found.sort(key=lambda name: name.startswith("__"))
    return render(
        request,
        "records_topics.html",
        names=found[:MOST_TOPICS],
        left=max(len(found) - MOST_TOPICS, 0),
        is_known=snapshot.metadata is not None,
        total=len(names),
        q=wanted,
    )


@dataclass(frozen=True, slots=True)
class Found:
    """What a page has read."""

    query: Query
    bounds: Bounds
    page: Page
    partitions: int
    """How many it could have read."""


async def show(request: Request) -> Response:
    topic = request.path_params["topic"]
    cluster = access_of(request).admin.cluster
    info = await cluster.topic(topic)
    given = request.query_params
    problem, found, shown = None, None, list[ShownRecord]()
    try:
        query = read_query(given, given.getlist("in"))
        found = await _read(cluster, topic, list(info.partitions), query)
        shown = await shown_rows(request, topic, found.page.rows, query)
    except BadQuery as error:
        problem, query = str(error), Query()
    if found is not None and query.is_backward:
        shown.reverse()
    base = f"/topics/{part(topic)}/records"
    return render(
        request,
        "records.html",
        400 if problem else 200,
        topic=topic,
        base=base,
        query=query,
        given=given,
        problem=problem,
        found=found,
        records=shown,
        links=_links(base, found),
        follow=given.get("follow") == "1",
        tail=with_query(f"{base}/tail", **query.going_on().parameters()),
        starts=STARTS,
        places=PLACES,
        formats=FORMATS,
    )


async def _read(cluster: Cluster, topic: str, partitions: Sequence[int], query: Query) -> Found:
    unknown = [one for one in query.partitions or () if one not in partitions]
    if unknown:
        raise BadQuery(f"{topic} has no partition {unknown[0]}: it has 0 to {len(partitions) - 1}")
    there, away = with_leaders(cluster.metadata, topic, query.partitions or partitions)
    bounds = _some(await find_bounds(cluster, topic, there, query.isolation))
    task = Task(topic=topic, isolation=query.isolation, search=Search.of(query), limit=query.limit)
    if query.at is not None:
        page = await read_newer(cluster, task, bounds, dict(query.at))
    elif query.before is not None:
        page = await read_older(cluster, task, bounds, dict(query.before))
    elif query.start == "end":
        page = await read_older(cluster, task, bounds, bounds.ends)
    else:
        page = await read_newer(cluster, task, bounds, await _start(cluster, topic, bounds, query))
    if away:
        page.problems[away[0]] = no_leaders(away)
    return Found(query, bounds, page, len(there))


def _some(bounds: Bounds) -> Bounds:
    """The partitions with records, if there are many."""
    if len(bounds.ends) <= MOST_PARTITIONS:
        return bounds
    filled = [one for one, end in bounds.ends.items() if end > bounds.starts[one]][:MOST_PARTITIONS]
    return Bounds({one: bounds.starts[one] for one in filled}, {one: bounds.ends[one] for one in filled})


async def _start(cluster: Cluster, topic: str, bounds: Bounds, query: Query) -> dict[int, int]:
    if query.start == "time":
        return await offsets_at(cluster, topic, bounds, query.since)
    return dict.fromkeys(bounds.starts, query.offset) if query.start == "offset" else dict(bounds.starts)


def _links(base: str, found: Found | None) -> dict[str, str | None]:
    """Where to go on: newer and older, if there are records."""
    links: dict[str, str | None] = {"newer": None, "older": None}
    if found is None:
        return links
    page, bounds, query = found.page, found.bounds, found.query
    if page.at != bounds.ends:
        links["newer"] = with_query(base, **query.going_on(at=page.at).parameters())
    if any(page.before[one] > bounds.starts[one] for one in page.before):
        links["older"] = with_query(base, **query.going_on(before=page.before).parameters())
    return links


async def shown_rows(
    request: Request, topic: str, rows: Sequence[Row], query: Query, room: Room = LIST
) -> list[ShownRecord]:
    """Rows as they are shown. A registry may be asked, so it happens in a thread."""
    console = console_of(request)
    decode = None if console.decoder is None else console.decoder.decode
    show_one = partial(
        shown_record,
        topic=topic,
        key=Lens(query.key_format, query.nested, decode),
        value=Lens(query.value_format, query.nested, decode),
        room=room,
        arguments=console.settings.arguments,
    )
    return await asyncio.to_thread(lambda: [show_one(row) for row in rows])


# ── one record ────────────────────────────────────────────────────────────────────────────────────────────────────


async def one(request: Request) -> Response:
    topic, partition, offset = _place(request)
    row, value = await _found(request)
    given = request.query_params
    try:
        query = read_query({name: given.get(name, "") for name in ("key", "value", "nested")})
    except BadQuery as error:
        raise HTTPException(400, str(error)) from None
    (shown,) = await shown_rows(request, topic, [row._replace(value=value)], query, WHOLE)
    bounds = await find_bounds(access_of(request).admin.cluster, topic, [partition], "read_uncommitted")
    return render(
        request,
        "record.html",
        topic=topic,
        base=f"/topics/{part(topic)}/records",
        record=shown,
        query=query,
        tabs={name: _tabs(request, name, query) for name in ("key", "value")},
        nested=_link(request, query, nested="" if query.nested else "1"),
        first=bounds.starts[partition],
        last=bounds.ends[partition] - 1,
        again=producing.again(topic, row._replace(value=value)),
        offset=offset,
    )


def _tabs(request: Request, name: str, query: Query) -> list[tuple[str, str, bool]]:
    """The formats of the key or the value: label, address, and whether it is the chosen one."""
    chosen = query.key_format if name == "key" else query.value_format
    return [(label, _link(request, query, **{name: one}), one == chosen) for one, label in FORMATS.items()]


def _link(request: Request, query: Query, **changes: str) -> str:
    given = {**query.parameters(), **changes}
    return with_query(path_in(request), **{name: value for name, value in given.items() if value != "auto"})


async def raw(request: Request) -> Response:
    """The value as a file. Browsers must not show it: it may be a page with a script."""
    topic, partition, offset = _place(request)
    _, value = await _found(request)
    if value is None:
        raise HTTPException(404, "This record has no value: it is null.")
    name = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in topic)
    headers = {"content-disposition": f'attachment; filename="{name}-{partition}-{offset}.bin"'}
    return Response(value, media_type="application/octet-stream", headers=headers)


def _place(request: Request) -> tuple[str, int, int]:
    return request.path_params["topic"], number_in(request, "partition"), number_in(request, "offset")


async def _found(request: Request) -> tuple[Row, bytes | None]:
    topic, partition, offset = _place(request)
    cluster = access_of(request).admin.cluster
    info = await cluster.topic(topic)
    if partition not in info.partitions:
        raise UnknownTopicOrPartition(
            f"topic {topic} has no partition {partition}: it has 0 to {len(info.partitions) - 1}"
        )
    found = await read_one(cluster, topic, partition, offset) if offset < 2**63 else None
    if found is None:
        raise HTTPException(404, f"There is no record at offset {offset} of partition {partition} of {topic}.")
    return found


title, path = "Records", "/records"
_RECORDS = "/topics/{topic:name}/records"
_RECORD = f"{_RECORDS}/{{partition}}/{{offset}}"
routes = [
    Route("/records", choose),
    Route(_RECORDS, show),
    Route(f"{_RECORDS}/tail", partial(tailing.tail, shown_rows)),
    Route(_RECORD, one),
    Route(f"{_RECORD}/value", raw),
    *producing.routes,
]
