"""``ottla groups configs``: show, set and unset the configs of one group."""

from __future__ import annotations

import argparse
from argparse import Namespace

from ottla.cli.options import add_config_options, config_changes
from ottla.cli.terminal import print_json, table
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.values import ConfigResource, ConfigValue
from ottla.errors import InvalidConfig, OttlaError

EPILOG = """examples:
  ottla groups configs billing                                            show the configs and their sources
  ottla groups configs billing --config consumer.session.timeout.ms=50000
  ottla groups configs billing --delete-config consumer.session.timeout.ms

These configs apply to groups of the consumer protocol (group.protocol=consumer). Members receive changes with their
next heartbeat. The group does not have to exist yet.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP")
    add_config_options(parser, "a config of the group, such as consumer.session.timeout.ms=50000; repeatable")
    parser.epilog = EPILOG


async def configs(admin: AsyncAdmin, args: Namespace) -> int:
    changes = config_changes(args)
    resource = ConfigResource.group(args.group)
    if changes:
        try:
            await admin.alter_configs({resource: changes})
        except InvalidConfig as error:
            raise OttlaError(f"{args.group}: {error}") from None
    values = (await admin.describe_configs([resource]))[resource].values()
    if args.json:
        rows = {one.name: {"value": one.value, "source": one.source.name.lower()} for one in values}
        print_json([{"group": args.group, "configs": rows}])
    else:
        print(table(["CONFIG", "VALUE", "SOURCE"], [[one.name, one.value, _source(one)] for one in values]))
    return 0


def _source(value: ConfigValue) -> str:
    return "group" if value.differs else "broker default"
