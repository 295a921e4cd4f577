"""``ottla groups explain GROUP``: print the rebalance history that the broker keeps for a group.

Of a group on Apache Kafka, which keeps none, print what follows from its records.

In a cluster it has the moves of the coordinator too. They follow from the history of the group's partition.
"""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from ottla.cli.options import positive
from ottla.cli.terminal import print_json, printable
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.groups import GroupDescription
from ottla.clients.admin.offsets_topic import GroupHistory, partition_of, read_history
from ottla.clients.admin.partition_history import read_changes
from ottla.coordinator.records import HistoryValue
from ottla.errors import TopicAuthorizationFailed
from ottla.groups.diagnosis import Diagnosis, derived_happenings, diagnose, happenings
from ottla.groups.lookup import existing_groups
from ottla.groups.timeline import (
    Names,
    derived_lines,
    headline,
    move_json,
    move_line,
    now_lines,
    rebalance_json,
    rebalance_lines,
)
from ottla.metadata.history import Move, moves
from ottla.metadata.machine import CONSUMER_OFFSETS
from ottla.monitoring.derived import Derived
from ottla.runtime.clock import SystemClock
from ottla.types import TopicPartition

_EPILOG = """\
examples:
  ottla groups explain billing             all stored rebalances, oldest first
  ottla groups explain billing --last 3
  ottla groups explain billing --json | jq '.rebalances[] | {generation, triggers}'

Apache Kafka records no causes. For its groups the command shows what follows from the members of each generation, and
says what is unknown.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument("-n", "--last", type=positive, metavar="N", help="only the last N rebalances")
    parser.add_argument("--full-ids", action="store_true", help="do not shorten member ids")


async def explain(admin: AsyncAdmin, args: Namespace) -> int:
    (group,) = await existing_groups(admin, [args.group])
    history = await read_history(admin.cluster, args.group)
    if not history.rebalances and history.under_way is None and history.generation > 0:
        _explain_derived(group, history, args)
        return 0
    shown = history.rebalances[-args.last :] if args.last else history.rebalances
    found = diagnose(happenings(history.rebalances), now=SystemClock().now())
    moved = await _moves_since(admin, args.group, [*shown, *([history.under_way] if history.under_way else [])])
    if args.json:
        print_json(_as_json(group, shown, history.under_way, moved) | {"diagnosis": _diagnosis_json(found)})
    else:
        first, *others = _as_text(group, shown, history.under_way, moved, args.full_ids)
        print("\n\n".join([_block([first, *_diagnosis_lines(found)]), *others]))
    return 0


def _diagnosis_lines(found: Diagnosis) -> list[str]:
    """What the rebalances of the last hour have in common, and what to change. The console says the same."""
    return [line for line in (found.sentence, found.advice, found.waits) if line] if found.count else []


def _diagnosis_json(found: Diagnosis) -> dict[str, object]:
    causes = [
        {"kind": one.cause.kind, "member": one.cause.name or None, "rebalances": one.numbers, "advice": one.advice}
        for one in found.shares
    ]
    return {"sentence": found.sentence, "advice": found.advice, "waits": found.waits, "causes": causes}


async def _moves_since(admin: AsyncAdmin, group: str, rebalances: Sequence[HistoryValue]) -> list[Move]:
    """The moves of the coordinator since the first of these rebalances."""
    if not rebalances:
        return []
    key = TopicPartition(CONSUMER_OFFSETS, await partition_of(admin.cluster, group))
    try:
        changes = await read_changes(admin.cluster, key)
    except TopicAuthorizationFailed:
        return []  # The rebalances are worth seeing without them.
    return [move for move in moves(changes or ()) if move.at >= rebalances[0].started_at]


_UNKNOWN = [
    "why a member left: it closed, its session expired, or it was too slow",
    "changes of subscriptions and topics",
    "how long a rebalance took, and for whom the group waited",
]


def _explain_derived(group: GroupDescription, history: GroupHistory, args: Namespace) -> None:
    """Print what follows from Kafka's own records, and what stays unknown."""
    shown = history.derived[-args.last :] if args.last else history.derived
    found = diagnose(derived_happenings(history.derived), now=SystemClock().now())
    if args.json:
        print_json(_derived_json(group, shown) | {"diagnosis": _diagnosis_json(found)})
        return
    names = Names(group.members, (), full=args.full_ids)
    intro = (
        f"The broker at {group.coordinator} keeps no history of rebalances, as Ottla's does. This is what "
        "__consumer_offsets shows."
    )
    rebalances = [_block(derived_lines(one, names, group.type)) for one in shown]
    unknown = _block(["unknown:", *(f"    {one}" for one in _UNKNOWN)])
    print("\n\n".join([_block([headline(group), *_diagnosis_lines(found)]), printable(intro), *rebalances, unknown]))


def _derived_json(group: GroupDescription, shown: Sequence[Derived]) -> dict[str, object]:
    return {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "members": len(group.members),
        "is_derived": True,
        "rebalances": [{**asdict(one), "causes": one.causes} for one in shown],
        "unknown": _UNKNOWN,
    }


def _as_text(
    group: GroupDescription,
    shown: Sequence[HistoryValue],
    under_way: HistoryValue | None,
    moved: Sequence[Move],
    full_ids: bool,
) -> list[str]:
    rebalances = [*shown, *([] if under_way is None else [under_way])]
    names = Names(group.members, rebalances, full=full_ids)
    timed = [(value.started_at, _block(rebalance_lines(value, names, group.type))) for value in shown]
    timed += [(move.at, printable(move_line(move))) for move in moved]
    blocks = [block for _, block in sorted(timed, key=lambda one: one[0])]
    if not rebalances:
        blocks = ["the group has not rebalanced yet"]
    now = _block(now_lines(group, under_way, names))
    return [printable(headline(group)), *blocks, *([now] if now else [])]


def _block(lines: Iterable[str]) -> str:
    return "\n".join(map(printable, lines))


def _as_json(
    group: GroupDescription, shown: Sequence[HistoryValue], under_way: HistoryValue | None, moved: Sequence[Move]
) -> dict[str, object]:
    return {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "members": len(group.members),
        "rebalances": [rebalance_json(value) for value in shown],
        "under_way": None if under_way is None else rebalance_json(under_way),
        "coordinator_moves": [move_json(move) for move in moved],
    }
