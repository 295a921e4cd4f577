"""The lab: designs of group management on the same churn, or on what a real group went through."""

from __future__ import annotations

from argparse import ArgumentTypeError

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.console.actions import shown_command
from ottla.console.experiments import Experiment
from ottla.console.render import render
from ottla.console.state import access_of, console_of
from ottla.console.views.commands import option
from ottla.console.views.lab import ABOUT_DESIGNS, MOST_MEMBERS, Choice, blocks, choice_of, scenarios
from ottla.errors import ConfigError, OttlaError
from ottla.lab.chart import unread_chart
from ottla.lab.history import Replay
from ottla.lab.replays import RECORDED_TIMEOUT, advice, recorded, settings
from ottla.lab.runs import DESIGNS
from ottla.lab.worker import Job
from ottla.times import parse_duration

RELOAD = 2
"""Seconds until a page whose experiment runs loads again, without JavaScript too."""


async def show(request: Request) -> Response:
    query = request.query_params
    if "group" in query:
        return await _show_replay(request, query["group"], query.get("since", ""))
    if not query.get("scenario"):
        return _page(request)
    try:
        chosen = choice_of(query, query.getlist("design"))
    except ConfigError as error:
        return _page(request, problem=str(error), status=400)
    experiments = console_of(request).experiments
    address = " ".join(chosen.command)
    experiment = experiments.find(address) or experiments.start(address, chosen.jobs())
    return _page(request, chosen=chosen, experiment=experiment, command=chosen.command)


async def _show_replay(request: Request, group: str, since: str) -> Response:
    """Replay the rebalances of a group. A new rebalance makes another experiment."""
    command = ["lab", *option("--group", group), *(option("--since", since) if since else [])]
    try:
        length = parse_duration(since) if since else None
        admin = access_of(request).admin
        found = await recorded(admin, group, since=length, session_timeout=RECORDED_TIMEOUT)
    except (OttlaError, ArgumentTypeError) as error:
        return _page(request, problem=str(error), group=group, command=command, status=400)
    experiments = console_of(request).experiments
    address = f"{' '.join(command)} {hash(found.scenario)}"
    experiment = experiments.find(address)
    if experiment is None:
        jobs = [Job(one, found.scenario, found.members, 1, found.partitions) for one in settings(found)]
        experiment = experiments.start(address, jobs)
    return _page(request, experiment=experiment, replay=found, group=group, command=command)


def _page(
    request: Request,
    *,
    chosen: Choice | None = None,
    experiment: Experiment | None = None,
    replay: Replay | None = None,
    group: str | None = None,
    command: list[str] | None = None,
    problem: str | None = None,
    status: int = 200,
) -> Response:
    results = experiment.results if experiment is not None else []
    is_over = experiment is None or experiment.is_over
    told = None
    if replay is not None and is_over and experiment is not None and len(results) == len(experiment.jobs):
        told = advice(replay, results)
    chart = unread_chart(results) if results and chosen is not None else None
    return render(
        request,
        "lab.html",
        status,
        scenarios=scenarios(),
        designs=DESIGNS,
        about=ABOUT_DESIGNS,
        chosen=chosen,
        chosen_designs=chosen.designs if chosen is not None else DESIGNS,
        most=MOST_MEMBERS,
        group=group,
        replay=replay,
        experiment=experiment,
        is_over=is_over,
        reload=RELOAD,
        blocks=blocks(results, with_polls=replay is not None and bool(replay.longest_poll)) if results else [],
        chart=chart,
        advice=told,
        command=None if command is None else shown_command(request, command, own_cluster=group is None),
        problem=problem or (experiment.problem if experiment is not None else None),
    )


title, path = "Lab", "/lab"
routes = [Route("/lab", show)]
