"""``ottla groups plan GROUP``: preview what an assignor would do with a group, or with a changed version of it.

The members, their subscriptions and assignments come from the coordinator; the assignor runs here. Nothing is changed.
"""

from __future__ import annotations

import argparse
from argparse import Namespace
from typing import Any

from ottla.cli.groups.describe import _partition_json
from ottla.cli.options import UsageError, not_negative, parse_setting, settings
from ottla.cli.terminal import note, print_json, table
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.groups import GroupDescription
from ottla.errors import ConfigError
from ottla.groups.lookup import existing_groups
from ottla.groups.offsets import format_partitions
from ottla.groups.plan import ASSIGNORS, STAYS, Plan, plan_for, summary

SHOWN_MOVES = 40
_EPILOG = """\
examples:
  ottla groups plan billing --assignor sticky --add 2       with two more members
  ottla groups plan billing --remove billing-1              without this member
  ottla groups plan billing --partitions orders=12          with a larger topic
  ottla groups plan billing --assignor cooperative-sticky   with another assignor
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument("--assignor", choices=ASSIGNORS, metavar="NAME", help=f"one of {', '.join(ASSIGNORS)}")
    parser.add_argument("--add", type=not_negative, default=0, metavar="N", help="plan with N more members")
    parser.add_argument(
        "--remove",
        action="append",
        default=[],
        metavar="MEMBER",
        help="plan without this member: its id or a prefix of it, its instance id or its client id; repeatable",
    )
    parser.add_argument(
        "--partitions",
        action="append",
        type=parse_setting,
        metavar="TOPIC=N",
        help="plan with N partitions of a topic; repeatable",
    )


async def show_plan(admin: AsyncAdmin, args: Namespace) -> int:
    (group,) = await existing_groups(admin, [args.group])
    if group.state != "Stable":
        note(f"group {group.group_id} is in state {group.state}: its assignments are about to change")
    try:
        planned = await plan_for(
            admin, group, args.assignor, add=args.add, remove=args.remove, partitions=settings(args.partitions)
        )
    except ConfigError as error:
        raise UsageError(str(error)) from None
    if args.json:
        print_json(_as_json(group, planned))
    else:
        print("\n".join(_as_text(group, planned)))
    return 0


# ── text and JSON ─────────────────────────────────────────────────────────────────────────────────────────────────


def _as_text(group: GroupDescription, planned: Plan) -> list[str]:
    rows = [
        [
            member.name if member.status == STAYS else f"{member.name} ({member.status})",
            len(member.before),
            len(member.after),
            format_partitions(member.after - member.before),
            format_partitions(member.before - member.after),
        ]
        for member in planned.members
    ]
    lines = [table(["CONSUMER-ID", "#BEFORE", "#AFTER", "GETS", "GIVES-UP"], rows), "", summary(group, planned)]
    if len(planned.moves) > SHOWN_MOVES:
        return lines
    return lines + [f"  {move.giver or 'nobody'} -> {move.taker}  {move.key}" for move in planned.moves]


def _as_json(group: GroupDescription, planned: Plan) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "assignor": planned.assignor,
        "present_assignor": group.assignor or None,
        "moved": len(planned.moved),
        "kept": planned.kept,
        "new": len(planned.moves) - len(planned.moved),
        "rebalances": planned.rebalances,
        "members": [
            {
                "consumer_id": member.name,
                "client_id": member.client_id,
                "instance_id": member.instance_id,
                "status": member.status,
                "before": [_partition_json(key) for key in sorted(member.before)],
                "after": [_partition_json(key) for key in sorted(member.after)],
            }
            for member in planned.members
        ],
        "moves": [{**_partition_json(move.key), "from": move.giver, "to": move.taker} for move in planned.moves],
    }
