"""``ottla lab``: what designs of group management cost in the same churn, simulated in virtual time."""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from ottla.charts import Line, line_chart
from ottla.cli.options import UsageError, add_json_option, not_negative, positive
from ottla.cli.terminal import note, print_json, table
from ottla.cli.times import duration, parse_duration
from ottla.errors import ConfigError
from ottla.lab.runs import DESIGNS, SESSION_TIMEOUT, Result, run
from ottla.lab.scenarios import BY_NAME, Scenario, read_scenario, scenario

MOST_MEMBERS = 1_000
_EPILOG = f"""\
designs:    {", ".join(DESIGNS)}
scenarios:  {", ".join(BY_NAME)}, or a file that ends in .toml

examples:
  ottla lab crash-loop                                  all designs, 10 members
  ottla lab rolling-deploy --members 50 --design classic-eager --design consumer
  ottla lab all --json > lab.json
  ottla lab crash-loop --chart crash-loop.svg

The same seed gives the same figures. docs/lab.md explains designs, scenarios and measures.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("scenario", metavar="SCENARIO", help="a scenario, a .toml file, or all")
    parser.add_argument("--members", type=positive, default=10, metavar="N", help="members at the start (default: 10)")
    parser.add_argument(
        "--design", action="append", choices=DESIGNS, metavar="DESIGN", help="only this design; repeatable"
    )
    parser.add_argument("--seed", type=not_negative, default=1, metavar="N", help="the seed (default: 1)")
    parser.add_argument(
        "--session-timeout", type=parse_duration, default=SESSION_TIMEOUT, metavar="TIME", help="default: 10s"
    )
    parser.add_argument("--chart", type=Path, metavar="FILE", help="draw the partitions that nobody reads, as SVG")
    add_json_option(parser)
    parser.set_defaults(run=compare)


def compare(args: Namespace) -> int:
    """Run the designs and print what they cost."""
    if args.members > MOST_MEMBERS:
        raise UsageError(f"--members: at most {MOST_MEMBERS}")
    if not 1_000 <= args.session_timeout <= 1_800_000:
        raise UsageError("--session-timeout: from 1s to 30m")
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
