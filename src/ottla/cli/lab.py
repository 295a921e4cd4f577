"""``ottla lab``: what designs of group management cost in the same churn, simulated in virtual time."""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ottla.charts import Line, line_chart
from ottla.cli.groups.common import existing_groups
from ottla.cli.options import (
    UsageError,
    add_bootstrap_option,
    add_json_option,
    client_config,
    not_negative,
    positive,
)
from ottla.cli.session import run as run_coroutine
from ottla.cli.terminal import note, plural, print_json, table
from ottla.cli.times import duration, parse_duration
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.groups import CONSUMER
from ottla.clients.admin.offsets_topic import read_history
from ottla.coordinator.history import KEPT
from ottla.errors import ConfigError, OttlaError
from ottla.lab.history import Replay, advice, replay
from ottla.lab.runs import DESIGNS, SESSION_TIMEOUT, Result, run
from ottla.lab.scenarios import BY_NAME, Scenario, read_scenario, scenario
from ottla.runtime.clock import SystemClock

MOST_MEMBERS = 1_000
RECORDED_TIMEOUT = 45_000
REPLAYED = tuple(design for design in DESIGNS if design not in ("watchers", "server"))
_EPILOG = f"""\
designs:    {", ".join(DESIGNS)}
scenarios:  {", ".join(BY_NAME)}, or a file that ends in .toml

examples:
  ottla lab crash-loop                                  all designs, 10 members
  ottla lab rolling-deploy --members 50 --design classic-eager --design consumer
  ottla lab all --json > lab.json
  ottla lab crash-loop --chart crash-loop.svg
  ottla lab --group billing --since 24h                 the recorded rebalances of a group, under other settings

The same seed gives the same figures. docs/lab.md explains designs, scenarios and measures.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("scenario", nargs="?", metavar="SCENARIO", help="a scenario, a .toml file, or all")
    parser.add_argument("--group", metavar="GROUP", help="replay the rebalances that ottla's broker has recorded")
    parser.add_argument(
        "--since", type=parse_duration, metavar="TIME", help="with --group: how far back (default: all)"
    )
    add_bootstrap_option(parser)
    parser.add_argument("--members", type=positive, default=10, metavar="N", help="members at the start (default: 10)")
    parser.add_argument(
        "--design", action="append", choices=DESIGNS, metavar="DESIGN", help="only this design; repeatable"
    )
    parser.add_argument("--seed", type=not_negative, default=1, metavar="N", help="the seed (default: 1)")
    parser.add_argument(
        "--session-timeout",
        type=parse_duration,
        metavar="TIME",
        help="of all members (default: 10s); with --group, what the group had (default: 45s)",
    )
    parser.add_argument("--chart", type=Path, metavar="FILE", help="draw the partitions that nobody reads, as SVG")
    add_json_option(parser)
    parser.set_defaults(run=compare)


def compare(args: Namespace) -> int:
    """Run the designs and print what they cost."""
    if args.members > MOST_MEMBERS:
        raise UsageError(f"--members: at most {MOST_MEMBERS}")
    if (args.scenario is None) == (args.group is None):
        raise UsageError("name a scenario, or a group with --group")
    if args.session_timeout is None:
        args.session_timeout = SESSION_TIMEOUT if args.group is None else RECORDED_TIMEOUT
    if not 1_000 <= args.session_timeout <= 1_800_000:
        raise UsageError("--session-timeout: from 1s to 30m")
    if args.group is not None:
        return _replay(args)
    if args.since is not None:
        raise UsageError("--since needs --group")
    scenarios = _scenarios(args.scenario, args.members)
    if args.chart is not None and len(scenarios) > 1:
        raise UsageError("--chart: choose one scenario")
    designs = list(dict.fromkeys(args.design or DESIGNS))
    results = [
        run(design, one, members=args.members, seed=args.seed, session_timeout=args.session_timeout)
        for one in scenarios
        for design in designs
    ]
    if args.chart is not None:
        args.chart.write_text(chart(results), encoding="utf-8")
    if args.json:
        print_json([one.as_dict() for one in results])
        return 0
    print(f"{args.members} members, {args.members * 2} partitions, seed {args.seed}")
    for one in scenarios:
        print(f"\n{one.name}\n{_table([result for result in results if result.scenario == one.name])}")
    print("\n* the least time without consumption; times of all partitions are added up")
    if args.chart is not None:
        note(f"wrote {args.chart}")
    return 0


def _replay(args: Namespace) -> int:
    """Replay the history of a group under other designs and session timeouts."""
    recorded = run_coroutine(_recorded(args))
    timeouts = [args.session_timeout, min(3 * args.session_timeout, 1_800_000)]
    if args.chart is not None:
        raise UsageError("--chart: not with --group, whose figures have several session timeouts")
    designs = list(dict.fromkeys([recorded.design, *(args.design or REPLAYED)]))
    options = {"members": recorded.members, "partitions": recorded.partitions, "seed": args.seed}
    results = [
        run(design, recorded.scenario, session_timeout=timeout, **options) for timeout in timeouts for design in designs
    ]
    costs = [(one.design, one.session_timeout_ms, one.without_ms) for one in results]
    told = advice(costs, (recorded.design, args.session_timeout))
    if args.json:
        events = [asdict(one) for one in recorded.scenario.events]
        figures = [one.as_dict() for one in results]
        print_json({"design": recorded.design, "events": events, "results": figures, "advice": told})
        return 0
    count = plural(len(recorded.scenario.events), "recorded event")
    print(f"group {args.group}: {count}, {plural(recorded.members, 'member')} at the start, now {recorded.design}")
    for timeout in timeouts:
        some = [one for one in results if one.session_timeout_ms == timeout]
        print(f"\nsession timeout {duration(timeout)}\n{_table(some)}")
    print(f"\n{told}")
    return 0


async def _recorded(args: Namespace) -> Replay:
    async with AsyncAdmin(client_config(args)) as admin:
        (group,) = await existing_groups(admin, [args.group])
        found = (await read_history(admin.cluster, args.group)).rebalances
    first = 0 if args.since is None else SystemClock().now() - args.since
    values = [one for one in found if one.ended_at >= first]
    if not values:
        since = "" if args.since is None else " in this time"
        raise OttlaError(
            f"group {args.group!r} has no recorded rebalances{since}: ottla's broker records the last {KEPT}, "
            "Apache Kafka records none"
        )
    is_consumer = group.type == CONSUMER
    return replay(args.group, values, is_consumer=is_consumer, session_timeout=args.session_timeout)


def _scenarios(name: str, members: int) -> list[Scenario]:
    try:
        if name.endswith(".toml"):
            return [read_scenario(Path(name))]
        return [scenario(one, members) for one in (BY_NAME if name == "all" else [name])]
    except ConfigError as error:
        raise UsageError(str(error)) from None


def _table(results: Sequence[Result]) -> str:
    least = min(one.without_ms for one in results)
    headers = [
        "DESIGN",
        "REQUESTS",
        "NOTIFIED",
        "KB",
        "BURST",
        "STABLE",
        "WITHOUT",
        "WORST",
        "MOVED",
        "TWO-OWNERS",
        "TWICE",
    ]
    rows = [
        [
            one.design,
            one.requests,
            one.notifications,
            round(one.bytes / 1000),
            one.burst,
            "never" if one.stable_after_ms is None else duration(one.stable_after_ms),
            duration(one.without_ms) + ("*" if one.without_ms == least else ""),
            duration(one.worst_without_ms),
            one.moved,
            one.split_brains,
            one.read_twice,
        ]
        for one in results
    ]
    return table(headers, rows)


def chart(results: Sequence[Result]) -> str:
    """The partitions that nobody reads, over time, as SVG."""
    first = results[0]
    return line_chart(
        title=f"Partitions that nobody reads: {first.scenario}",
        subtitle=f"{first.members} members, {first.partitions} partitions, seed {first.seed}",
        lines=[Line(one.design, list(one.unread)) for one in results],
        unit="partitions",
    )
