"""``ottla quotas list|set|remove``: what users, client ids and addresses may use of each broker."""

from __future__ import annotations

import argparse
import math
from argparse import Namespace

from ottla.cli.options import UsageError, parse_setting, settings
from ottla.cli.session import add_action
from ottla.cli.terminal import plural, print_json, table
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.quotas import QuotaEntity, Which, checked_quotas
from ottla.errors import OttlaError
from ottla.security.quotas import CLIENT_QUOTAS, IP_QUOTAS

_EPILOG = """\
examples:
  ottla quotas set --user alice producer_byte_rate=1000000 consumer_byte_rate=2000000
  ottla quotas set --default-user request_percentage=50
  ottla quotas set --user alice --client-id reports consumer_byte_rate=500000
  ottla quotas set --ip 10.0.0.7 connection_creation_rate=20
  ottla quotas list --user alice
  ottla quotas remove --user alice producer_byte_rate
  ottla quotas remove --default-user

The quotas:
"""
_WIDTH = max(map(len, (*CLIENT_QUOTAS, *IP_QUOTAS)))
_QUOTAS = "\n".join(f"  {name:{_WIDTH}}  {what}" for name, what in (CLIENT_QUOTAS | IP_QUOTAS).items())


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG + _QUOTAS
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    _add_entity(add_action(actions, "list", list_, "list the quotas, of all or of one user, client id or address"))
    set_parser = add_action(actions, "set", set_, "set quotas of a user, a client id, both, or an address")
    _add_entity(set_parser)
    set_parser.add_argument("quotas", nargs="+", type=parse_setting, metavar="NAME=VALUE", help="a quota and its value")
    remove_parser = add_action(actions, "remove", remove, "remove quotas of a user, a client id, both, or an address")
    _add_entity(remove_parser)
    remove_parser.add_argument("quotas", nargs="*", metavar="NAME", help="a quota; without any, all of them")


def _add_entity(parser: argparse.ArgumentParser) -> None:
    for option, what in (("user", "user"), ("client-id", "client id"), ("ip", "address")):
        group = parser.add_mutually_exclusive_group()
        group.add_argument(f"--{option}", metavar="NAME", help=f"the {what}")
        group.add_argument(f"--default-{option}", action="store_true", help=f"every {what} without an own quota")


def _entity(args: Namespace) -> QuotaEntity:
    def named(option: str) -> str | Which | None:
        return QuotaEntity.DEFAULT if getattr(args, f"default_{option}") else getattr(args, option)

    try:
        return QuotaEntity(named("user"), named("client_id"), named("ip"))
    except ValueError as error:
        raise UsageError(str(error)) from None


def _required_entity(args: Namespace) -> QuotaEntity:
    entity = _entity(args)
    if not entity.parts:
        raise UsageError("whose quotas? give --user, --client-id, --ip, or --default-user, …")
    return entity


async def list_(admin: AsyncAdmin, args: Namespace) -> int:
    found = await admin.describe_quotas(_entity(args))
    if args.json:
        print_json([{**_names(entity), "quotas": quotas} for entity, quotas in found.items()])
    elif not found:
        print("no quotas match" if _entity(args).parts else "no quotas are set")
    else:
        headers = ["USER", "CLIENT ID", "ADDRESS", "QUOTA", "VALUE"]
        rows = [
            [entity.user, entity.client_id, entity.ip, name, f"{value:,.12g}"]
            for entity, quotas in found.items()
            for name, value in sorted(quotas.items())
        ]
        kept = [index for index in range(5) if any(row[index] is not None for row in rows)]
        print(table([headers[index] for index in kept], [[row[index] for index in kept] for row in rows]))
    return 0


async def set_(admin: AsyncAdmin, args: Namespace) -> int:
    entity = _required_entity(args)
    quotas: dict[str, float | None] = {name: _number(name, text) for name, text in settings(args.quotas).items()}
    try:
        checked_quotas(quotas, entity)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return await _alter(admin, args, entity, quotas)


def _number(name: str, text: str) -> float:
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise UsageError(f"{name} must be a number above 0, not {text!r}; `ottla quotas remove` ends a limit")
    return value


async def remove(admin: AsyncAdmin, args: Namespace) -> int:
    entity = _required_entity(args)
    found = (await admin.describe_quotas(entity, strict=True)).get(entity, {})
    for name in args.quotas:
        if name not in found:
            has = ", ".join(found) or "no quotas"
            raise OttlaError(f"{entity} has no quota {name!r}: it has {has}")
    if not found:
        raise OttlaError(f"{entity} has no quotas; `ottla quotas list` lists all")
    return await _alter(admin, args, entity, dict.fromkeys(args.quotas or found))


async def _alter(admin: AsyncAdmin, args: Namespace, entity: QuotaEntity, quotas: dict[str, float | None]) -> int:
    await admin.alter_quotas({entity: quotas})
    if args.json:
        left = (await admin.describe_quotas(entity, strict=True)).get(entity, {})
        print_json([{**_names(entity), "quotas": left}])
    else:
        verb = "removed" if None in quotas.values() else "set"
        print(f"{verb} {plural(len(quotas), 'quota')} of {entity}")
    return 0


def _names(entity: QuotaEntity) -> dict[str, str]:
    return {kind.replace("-", "_"): str(name) for kind, name in entity.parts.items()}
