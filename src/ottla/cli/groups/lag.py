"""``ottla groups lag``: how far groups are behind, in records and in seconds, by topic."""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Sequence
from itertools import groupby

from ottla.cli.groups.describe import group_names
from ottla.cli.terminal import print_json, table
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.groups.lookup import existing_groups
from ottla.groups.offsets import OffsetRow, offset_rows, shown_seconds

_EPILOG = """\
examples:
  ottla groups lag billing
  ottla groups lag --all-groups
  ottla groups lag --all-groups --json | jq '.[] | select(.lag_seconds > 60)'

LAG-SECONDS is the age of the oldest record that the group has not read, in its slowest partition. LOST counts records
that retention deleted before the group read them. A dash means that it is unknown.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("groups", nargs="*", metavar="GROUP")
    parser.add_argument("--all-groups", action="store_true", help="every consumer group")


async def lag(admin: AsyncAdmin, args: Namespace) -> int:
    groups = await existing_groups(admin, await group_names(admin, args))
    rows = await offset_rows(admin, groups)
    totals = [
        _total(group, topic, list(some))
        for group, partitions in rows.items()
        for topic, some in groupby(partitions, key=lambda row: row.key.topic)
    ]
    if args.json:
        print_json(totals)
    elif not totals:
        print("no offsets have been committed yet" if groups else "no groups exist yet")
    else:
        names = ["group", "topic", "partitions", "lag", "lag_seconds", "lost"]
        lines = [
            [shown_seconds(one["lag_seconds"]) if name == "lag_seconds" else one[name] for name in names]  # type: ignore[arg-type]
            for one in totals
        ]
        print(table([name.upper().replace("_", "-") for name in names], lines))
    return 0


def _total(group: str, topic: str, rows: Sequence[OffsetRow]) -> dict[str, object]:
    return {
        "group": group,
        "topic": topic,
        "partitions": len(rows),
        "lag": sum(known) if (known := [row.lag for row in rows if row.lag is not None]) else None,
        "lag_seconds": max((row.lag_seconds for row in rows if row.lag_seconds is not None), default=None),
        "lost": sum(row.lost or 0 for row in rows),
    }
