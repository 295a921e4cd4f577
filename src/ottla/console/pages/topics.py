"""Topics: search them, look at partitions and configs. The actions are in `topic_actions.py`."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.clients.admin.lag import log_bounds
from ottla.clients.admin.values import ConfigResource
from ottla.clients.cluster.metadata import format_topic_id
from ottla.console.pages import topic_actions
from ottla.console.render import path_in, render, with_query
from ottla.console.state import access_of
from ottla.console.views.paging import page_of
from ottla.console.views.topics import SORTS, config_rows, partition_rows, topic_row, topic_rows

TOPICS_SHOWN = 50
PARTITIONS_SHOWN = 100


async def show_list(request: Request) -> Response:
    collector = access_of(request).collector
    snapshot = await collector.current()
    collector.want_sizes()
    query = request.query_params
    search, internal = query.get("q", ""), query.get("internal", "") == "yes"
    sort = query.get("sort", "name")
    sort = sort if sort in SORTS else "name"
    found = topic_rows(snapshot, search=search, internal=internal, sort=sort)
    page, pages = page_of(found, query.get("page", "1"), TOPICS_SHOWN)

    def url(**changes: object) -> str:
        shown = {"q": search, "internal": "yes" if internal else "", "sort": sort if sort != "name" else ""}
        return with_query("/topics", **{**shown, **changes})

    return render(
        request,
        "topics.html",
        snapshot=snapshot,
        topics=found[(page - 1) * TOPICS_SHOWN : page * TOPICS_SHOWN],
        total=len(found),
        page=page,
        pages=pages,
        search=search,
        internal=internal,
        sort=sort,
        url=url,
        page_url=lambda number: url(page=number),
    )


async def show_topic(request: Request) -> Response:
    access, name = access_of(request), request.path_params["topic"]
    snapshot = await access.collector.current()
    access.collector.want_sizes()
    topic = await access.admin.cluster.topic(name)
    page, pages = page_of(topic.topic_partitions, request.query_params.get("page", "1"), PARTITIONS_SHOWN)
    shown = topic.topic_partitions[(page - 1) * PARTITIONS_SHOWN : page * PARTITIONS_SHOWN]
    bounds = await log_bounds(access.admin.cluster, shown)
    rows = partition_rows(topic, bounds=bounds, rates=snapshot.rates, sizes=snapshot.sizes)
    described = await access.admin.describe_configs([name], include_documentation=True, raise_errors=False)
    resource = ConfigResource.topic(name)
    search = request.query_params.get("q", "")
    return render(
        request,
        "topic.html",
        topic=topic,
        topic_id=None if topic.topic_id is None else format_topic_id(topic.topic_id),
        row=topic_row(snapshot, name),
        snapshot=snapshot,
        partitions=rows[(page - 1) * PARTITIONS_SHOWN : page * PARTITIONS_SHOWN],
        page=page,
        pages=pages,
        page_url=lambda number: with_query(path_in(request), page=number, q=search),
        groups=None if snapshot.rows is None else topic_actions.readers(snapshot.rows, name),
        configs=config_rows(described[resource], search) if resource in described else None,
        configs_problem=str(described.errors.get(resource, "")),
        search=search,
    )


title, path = "Topics", "/topics"
routes = [Route("/topics", show_list), *topic_actions.routes, Route("/topics/{topic:name}", show_topic)]
