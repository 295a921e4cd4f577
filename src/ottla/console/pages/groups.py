"""Groups: the list, one group with its charts, one rebalance, and what-if plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.clients.admin.groups import GroupDescription, ListedGroup
from ottla.clients.admin.offsets_topic import GroupHistory
from ottla.console.actions import shown_command
from ottla.console.collector import Snapshot
from ottla.console.pages import group_actions
from ottla.console.pages.group_actions import group_url, lab_url
from ottla.console.readers import Read
from ottla.console.render import message_page, number_in, render, with_query
from ottla.console.state import Access, access_of
from ottla.console.views.commands import about, option
from ottla.console.views.groups import (
    PAGE,
    SORTS,
    group_rows,
    member_rows,
    pages_of,
    partition_ranges,
    state_kind,
)
from ottla.console.views.lag import LagHistory, earlier_times, lag_charts, lag_over_time, log_times, sample_times
from ottla.console.views.paging import whole
from ottla.console.views.rebalances import (
    cause_of,
    chart_start,
    diagnosis_of,
    names_of,
    ownership,
    ownership_chart,
    rebalances_of,
    word_of,
)
from ottla.errors import KafkaError, OttlaError
from ottla.groups.log_ends import offsets_at
from ottla.groups.lookup import existing_groups
from ottla.groups.offsets import OffsetRow, offset_rows
from ottla.groups.plan import ASSIGNORS, plan_for, summary
from ottla.types import Millis

HOUR: Millis = 3_600_000
PERIODS = {"1h": HOUR, "6h": 6 * HOUR, "24h": 24 * HOUR, "7d": 168 * HOUR}
SAMPLES, FEWEST_SAMPLES = 60, 12
MOST_ANSWERS = 20_000
"""Partitions times samples: more would keep the brokers busy for a chart."""
ROWS_FOR, CHARTS_FOR = 4.0, 30.0
"""Seconds for which all browsers get the same offsets and the same charts of lag."""
LIST_MS: Millis = 3_000
SHORTEST_CHART: Millis = 10_000
SHOWN_PARTITIONS = 200
SHOWN_REBALANCES = 50


async def show_list(request: Request) -> Response:
    access, query = access_of(request), request.query_params
    search, state, sort = query.get("q", ""), query.get("state", ""), query.get("sort", "lag")
    snapshot = await access.collector.current()
    listed = await _listed(access, snapshot)
    rows = group_rows(listed, snapshot.rows, search=search, state=state, sort=sort)
    page, pages = pages_of(len(rows), query.get("page", "1"))

    def url(number: int) -> str:
        return with_query("/groups", q=search, state=state, sort=sort, page=number)

    return render(
        request,
        "groups.html",
        rows=rows[(page - 1) * PAGE : page * PAGE],
        total=len(rows),
        any_groups=bool(listed),
        is_read=snapshot.rows is not None,
        states=sorted({one.state for one in listed if one.state}),
        search=search,
        state=state,
        sort=sort if sort in SORTS else "lag",
        sorts={name: with_query("/groups", q=search, state=state, sort=name) for name in SORTS},
        page=page,
        pages=pages,
        url=url,
    )


async def _listed(access: Access, snapshot: Snapshot) -> Sequence[ListedGroup]:
    """The groups now, or those of the last round if a broker does not answer."""
    try:
        return [one for one in await access.admin.list_groups(timeout_ms=LIST_MS) if one.of_consumers]
    except KafkaError:
        if snapshot.groups is None:
            raise
        return snapshot.groups


@dataclass(frozen=True, slots=True)
class Seen:
    """What the pages of a group have in common."""

    group: GroupDescription
    read: Read
    period: str
    now: Millis

    @property
    def history(self) -> GroupHistory:
        return self.read.history

    @property
    def length(self) -> Millis:
        return PERIODS[self.period]


async def _seen(request: Request) -> Seen:
    access = access_of(request)
    (group,) = await existing_groups(access.admin, [request.path_params["group"]])
    read = await access.groups.read(group.group_id)
    asked = request.query_params.get("period", "")
    return Seen(group, read, asked if asked in PERIODS else "1h", access.now())


async def show_group(request: Request) -> Response:
    access = access_of(request)
    await access.collector.current()
    seen = await _seen(request)
    group, name = seen.group, seen.group.group_id

    async def rows() -> list[OffsetRow]:
        return (await offset_rows(access.admin, [group]))[name]

    offsets = await access.groups.cached(name, "offsets", ROWS_FOR, rows)
    names = names_of(group, seen.history)
    rebalances = rebalances_of(seen.history)
    links = {
        one.number: with_query(group_url(name, f"/rebalances/{one.number}"), period=seen.period) for one in rebalances
    }
    first = chart_start(rebalances, first=seen.now - seen.length, last=seen.now)
    owned = ownership(rebalances, group.members, first=first, last=seen.now)
    seconds = [row.lag_seconds for row in offsets if row.lag_seconds is not None]
    return render(
        request,
        "group.html",
        group=group,
        kind=state_kind(group.state),
        period=seen.period,
        periods={one: with_query(group_url(name), period=one) for one in PERIODS},
        diagnosis=diagnosis_of(seen.history, now=seen.now, period=seen.length),
        is_derived=bool(rebalances and rebalances[0].is_derived),
        chart=ownership_chart(owned, rebalances, names, links, group=name) if owned.rows else None,
        owned=owned,
        rebalances=[(one, cause_of(one, names), links[one.number]) for one in rebalances[: -SHOWN_REBALANCES - 1 : -1]],
        word=word_of(group.type),
        members=member_rows(group, offsets, {one.member_id: names.of(one.member_id) for one in group.members}),
        offsets=offsets[:SHOWN_PARTITIONS],
        partitions=len(offsets),
        lag=sum(known) if (known := [row.lag for row in offsets if row.lag is not None]) else None,
        unread_unknown=sum(row.committed is not None and row.lag is None for row in offsets),
        seconds=max(seconds) if seconds else None,
        lost=sum(row.lost or 0 for row in offsets),
        lag_charts=await access.groups.cached(
            name, f"lag {seen.period}", CHARTS_FOR, lambda: _lag_charts(access, seen, offsets)
        ),
        is_complete=seen.read.is_complete,
        replay=lab_url(name, seen.period),
        explain=shown_command(request, about(["groups", "explain"], name)),
    )


async def _lag_charts(access: Access, seen: Seen, offsets: list[OffsetRow]) -> tuple[str, str] | None:
    """Lag over time; None if nothing is known or there are too many partitions."""
    commits = seen.read.commits
    ends = {row.key: row.end_offset for row in offsets if row.end_offset is not None and row.key in commits}
    count = min(SAMPLES, MOST_ANSWERS // max(len(ends), 1))
    if not ends or count < FEWEST_SAMPLES:
        return None
    last = seen.now
    # A young group has no lag before its first commit.
    known = min((at for key in ends for at, _ in commits[key][:1]), default=last)
    first = min(max(last - seen.length, known), last - SHORTEST_CHART)
    times = sample_times(first, last, count)
    asked = [*earlier_times(first, last), *times]
    answers = await offsets_at(access.admin.cluster, sorted(ends), asked)
    partitions = {
        key: lag_over_time(times, commits[key], log_times(asked, answers[key], end))
        for key, end in sorted(ends.items())
    }
    history = LagHistory(partitions)
    return lag_charts(seen.group.group_id, history) if history.is_known else None


async def show_rebalance(request: Request) -> Response:
    seen = await _seen(request)
    name = seen.group.group_id
    rebalances = {one.number: one for one in rebalances_of(seen.history)}
    number = number_in(request, "number")
    if number not in rebalances:
        text = f"Rebalance #{number} of group {name} is not recorded. The broker keeps the last 50 of a group."
        return message_page(request, "Not found", text, 404)
    rebalance, names = rebalances[number], names_of(seen.group, seen.history)
    found = diagnosis_of(seen.history, now=seen.now, period=seen.now)
    shares = [one for one in found.shares if number in one.numbers]
    ways: dict[tuple[str, str], list[str]] = {}
    for move in rebalance.moves:
        ways.setdefault((names.of(move.source), names.of(move.target)), []).append(f"{move.topic}:{move.partition}")
    return render(
        request,
        "rebalance.html",
        group=seen.group,
        one=rebalance,
        word=word_of(seen.group.type),
        names=names,
        share=shares[0] if shares else None,
        ways=ways,
        before=max((one for one in rebalances if one < number), default=None),
        after=min((one for one in rebalances if one > number), default=None),
        back=with_query(group_url(name), period=seen.period),
        period=seen.period,
        replay=lab_url(name, seen.period),
        explain=shown_command(request, about(["groups", "explain"], name)),
    )


async def show_plan(request: Request) -> Response:
    access, query = access_of(request), request.query_params
    (group,) = await existing_groups(access.admin, [request.path_params["group"]])
    assignor = query.get("assignor") or (group.assignor if group.assignor in ASSIGNORS else "range")
    add = query.get("add", "0")
    remove = query.getlist("remove")
    topics = sorted({topic for one in group.members for topic in (*one.topics, *(k.topic for k in one.assignment))})
    counts = {topic: query.get(f"partitions.{topic}", "") for topic in topics}
    wanted = {topic: count for topic, count in counts.items() if count}
    planned, problem = None, None
    try:
        more = whole(add)
        if more is None or more > 1_000 or assignor not in ASSIGNORS:
            raise OttlaError(f"write 0 to 1000 members to add, and an assignor of {', '.join(ASSIGNORS)}")
        planned = await plan_for(access.admin, group, assignor, add=more, remove=remove, partitions=wanted)
    except OttlaError as error:
        problem = str(error)
    options = [*option("--assignor", assignor), *(option("--add", add) if add != "0" else [])]
    options += [word for one in remove for word in option("--remove", one)]
    options += [word for topic, count in wanted.items() for word in option("--partitions", f"{topic}={count}")]
    return render(
        request,
        "group_plan.html",
        400 if problem and group.members else 200,
        group=group,
        assignors=ASSIGNORS,
        assignor=assignor,
        add=add,
        remove=remove,
        counts=counts,
        plan=planned,
        sentence=summary(group, planned) if planned is not None else "",
        problem=problem,
        short=names_of(group, GroupHistory((), None, 0)),
        partitions=partition_ranges,
        command=shown_command(request, about(["groups", "plan"], group.group_id, *options)),
    )


title, path = "Groups", "/groups"
routes = [
    Route("/groups", show_list),
    Route("/groups/{group:name}/rebalances/{number}", show_rebalance),
    Route("/groups/{group:name}/plan", show_plan),
    *group_actions.routes,
    Route("/groups/{group:name}", show_group),
]
