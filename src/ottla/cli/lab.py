"""``ottla lab``: what designs of group management cost in the same churn, simulated in virtual time."""

from __future__ import annotations

import argparse
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

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
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.errors import ConfigError
from ottla.lab.chart import unread_chart
from ottla.lab.history import Replay
from ottla.lab.replays import LONGEST_TIMEOUT, RECORDED_TIMEOUT, REPLAYED, advice, recorded, run_under, settings
from ottla.lab.runs import DESIGNS, SESSION_TIMEOUT, Result, run
from ottla.lab.scenarios import BY_NAME, Scenario, read_scenario, scenario
from ottla.times import duration, parse_duration

MOST_MEMBERS = 1_000
_EPILOG = f"""\
designs:    {", ".join(DESIGNS)}
scenarios:  {", ".join(BY_NAME)}, or a file that ends in .toml

examples:
  ottla lab crash-loop                                  all designs, 10 members
  ottla lab rolling-deploy --members 50 --design classic-eager --design consumer
  ottla lab all --json > lab.json
  ottla lab crash-loop --chart crash-loop.svg
  ottla lab scale --real --design consumer              with real processes too, for a few minutes
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
    parser.add_argument(
        "--real",
        action="store_true",
        help="also run it with real processes, a broker and ZooKeeper, for as long as the events take",
    )
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
    if not 1_000 <= args.session_timeout <= LONGEST_TIMEOUT:
        raise UsageError("--session-timeout: from 1s to 30m")
    if args.group is not None and args.real:
        raise UsageError("--real: not with --group, whose events took too long")
    if args.group is not None:
        return _replay(args)
    if args.since is not None:
        raise UsageError("--since needs --group")
    scenarios = _scenarios(args.scenario, args.members)
    if args.chart is not None and len(scenarios) > 1:
        raise UsageError("--chart: choose one scenario")
    designs = list(dict.fromkeys(args.design or DESIGNS))
    if args.real:
        return _compare_with_reality(args, scenarios, designs)
    results = [
        run(design, one, members=args.members, seed=args.seed, session_timeout=args.session_timeout)
        for one in scenarios
        for design in designs
    ]
    if args.chart is not None:
        args.chart.write_text(unread_chart(results), encoding="utf-8")
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


def _compare_with_reality(args: Namespace, scenarios: Sequence[Scenario], designs: Sequence[str]) -> int:
    """Run scenarios for real and in the simulation, and print both."""
    from ottla.lab.real.runs import MEASURED, check, check_installed, run_real, seconds

    if args.chart is not None:
        raise UsageError("--chart: not with --real")
    try:
        for one in scenarios:
            check(one, args.members)
    except ConfigError as error:
        raise UsageError(str(error)) from None
    check_installed()
    total = sum(seconds(one) for one in scenarios) * len(designs)
    print(f"this takes about {duration(round(total) * 1000)}", file=sys.stderr)
    pairs: list[tuple[Result, Result]] = []
    for one in scenarios:
        for design in designs:
            options = {"members": args.members, "session_timeout": args.session_timeout}
            simulated = run(design, one, seed=args.seed, **options)
            real = run_coroutine(run_real(design, one, progress=note, **options))
            pairs.append((real, simulated))
    if args.json:
        measured = [({name: real.as_dict()[name] for name in MEASURED}, simulated) for real, simulated in pairs]
        print_json([{"real": real, "simulated": simulated.as_dict()} for real, simulated in measured])
        return 0
    print(f"{args.members} members, {args.members * 2} partitions, seed {args.seed}; real / simulated")
    for one in scenarios:
        some = [pair for pair in pairs if pair[0].scenario == one.name]
        print(f"\n{one.name}\n{_real_table(some)}")
    return 0


def _real_table(pairs: Sequence[tuple[Result, Result]]) -> str:
    headers = ["DESIGN", "REQUESTS", "OFF", "NOTIFIED", "MOVED", "STABLE", "WITHOUT"]
    rows = [
        [
            real.design,
            f"{real.requests} / {simulated.requests}",
            f"{100 * (real.requests - simulated.requests) / max(simulated.requests, 1):+.0f} %",
            f"{real.notifications} / {simulated.notifications}",
            f"{real.moved} / {simulated.moved}",
            f"{_stable(real)} / {_stable(simulated)}",
            f"{duration(real.without_ms)} / {duration(simulated.without_ms)}",
        ]
        for real, simulated in pairs
    ]
    return table(headers, rows)


def _stable(result: Result) -> str:
    return "never" if result.stable_after_ms is None else duration(result.stable_after_ms)


def _replay(args: Namespace) -> int:
    """Replay the history of a group under other designs and timeouts."""
    if args.chart is not None:
        raise UsageError("--chart: not with --group, whose figures have several timeouts")
    found = run_coroutine(_recorded(args))
    results = [run_under(found, one, seed=args.seed) for one in settings(found, args.design or REPLAYED)]
    told = advice(found, results)
    if args.json:
        events = [asdict(one) for one in found.scenario.events]
        figures = [one.as_dict() for one in results]
        print_json({"design": found.design, "events": events, "results": figures, "advice": told})
        return 0
    count = plural(len(found.scenario.events), "recorded event")
    print(f"group {args.group}: {count}, {plural(found.members, 'member')} at the start, now {found.design}")
    for session, polls in dict.fromkeys((one.session_timeout_ms, one.max_poll_interval_ms) for one in results):
        some = [one for one in results if (one.session_timeout_ms, one.max_poll_interval_ms) == (session, polls)]
        polled = f", max.poll.interval.ms {polls}" if found.longest_poll else ""
        print(f"\nsession timeout {duration(session)}{polled}\n{_table(some)}")
    print(f"\n{told}")
    return 0


async def _recorded(args: Namespace) -> Replay:
    async with AsyncAdmin(client_config(args)) as admin:
        return await recorded(admin, args.group, since=args.since, session_timeout=args.session_timeout)


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
            _stable(one),
            duration(one.without_ms) + ("*" if one.without_ms == least else ""),
            duration(one.worst_without_ms),
            one.moved,
            one.split_brains,
            one.read_twice,
        ]
        for one in results
    ]
    return table(headers, rows)
