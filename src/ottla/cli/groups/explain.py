"""``ottla groups explain GROUP``: print the rebalance history that the broker keeps for a group."""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Iterable, Sequence

from ottla.cli.groups.common import existing_groups
from ottla.cli.groups.timeline import Names, headline, now_lines, rebalance_json, rebalance_lines
from ottla.cli.options import positive
from ottla.cli.terminal import print_json, printable
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.groups import GroupDescription
from ottla.clients.admin.offsets_topic import GroupHistory, read_history
from ottla.coordinator.records import HistoryValue
from ottla.errors import OttlaError

_EPILOG = """\
examples:
  ottla groups explain billing             all stored rebalances, oldest first
  ottla groups explain billing --last 3
  ottla groups explain billing --json | jq '.rebalances[] | {generation, triggers}'
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
        raise OttlaError(_not_written(group, history))
    shown = history.rebalances[-args.last :] if args.last else history.rebalances
    if args.json:
        print_json(_as_json(group, shown, history.under_way))
    else:
        print("\n\n".join(_as_text(group, shown, history.under_way, args.full_ids)))
    return 0


def _not_written(group: GroupDescription, history: GroupHistory) -> str:
    return (
        f"the broker at {group.coordinator} keeps no rebalance history, so group {group.group_id!r} (generation "
        f"{history.generation}) cannot be explained. Ottla's broker keeps one; for Apache Kafka, see the broker logs"
    )


def _as_text(
    group: GroupDescription, shown: Sequence[HistoryValue], under_way: HistoryValue | None, full_ids: bool
) -> list[str]:
    rebalances = [*shown, *([] if under_way is None else [under_way])]
    names = Names(group.members, rebalances, full=full_ids)
    blocks = [_block(rebalance_lines(value, names, group.type)) for value in shown]
    if not rebalances:
        blocks = ["the group has not rebalanced yet"]
    now = _block(now_lines(group, under_way, names))
    return [printable(headline(group)), *blocks, *([now] if now else [])]


def _block(lines: Iterable[str]) -> str:
    return "\n".join(map(printable, lines))


def _as_json(
    group: GroupDescription, shown: Sequence[HistoryValue], under_way: HistoryValue | None
) -> dict[str, object]:
    return {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "members": len(group.members),
        "rebalances": [rebalance_json(value) for value in shown],
        "under_way": None if under_way is None else rebalance_json(under_way),
    }
