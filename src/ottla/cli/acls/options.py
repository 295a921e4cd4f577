"""The options of ``ottla acls``: principals, operations, resources, hosts."""

from __future__ import annotations

import argparse
import shlex
from argparse import Namespace
from collections.abc import Callable
from typing import Any

from ottla.cli.options import DEFAULT_BOOTSTRAP, UsageError, format_addresses, parse_addresses
from ottla.security.acls import (
    CLUSTER_NAME,
    SUPPORTED,
    WILDCARD,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    network_of,
)
from ottla.security.principals import parse_principal

#: The option of each type of resource.
RESOURCES = {
    ResourceType.TOPIC: "--topic",
    ResourceType.GROUP: "--group",
    ResourceType.TRANSACTIONAL_ID: "--transactional-id",
    ResourceType.DELEGATION_TOKEN: "--delegation-token",
    ResourceType.USER: "--user",
    ResourceType.CLUSTER: "--cluster",
}


def add_principals(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    parser.add_argument(
        "--principal",
        action="append",
        required=required,
        type=_checked(lambda text: str(parse_principal(text))),
        metavar="TYPE:NAME",
        help="such as User:etl, or User:* for everyone; repeatable",
    )


def add_operations(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    parser.add_argument(
        "--operation",
        action="append",
        required=required,
        type=_checked(operation),
        metavar="NAME",
        help="Read, Write, Create, Delete, Alter, Describe, DescribeConfigs, AlterConfigs, ClusterAction, "
        "IdempotentWrite or All; repeatable",
    )


def add_resources(parser: argparse.ArgumentParser, *, several: str = "this", prefixes: bool = True) -> None:
    """Add an option for each type of resource, and --prefix for all of them."""
    for kind, option in RESOURCES.items():
        if kind == ResourceType.CLUSTER:
            parser.add_argument(option, action="store_true", help=f"{several} cluster")
        else:
            what = kind.name.lower().replace("_", " ")
            parser.add_argument(option, action="append", metavar="NAME", help=f"{several} {what}; repeatable")
    if prefixes:
        help_ = "names are prefixes: all resources that start with them"
        parser.add_argument("--prefix", action="store_true", help=help_)


def add_hosts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--host",
        action="append",
        type=_checked(_host),
        metavar="ADDRESS",
        help="an address or a network such as 10.0.0.0/8 (default: every host); repeatable",
    )


def add_permissions(parser: argparse.ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--allow", action="store_true", help="only rules that allow")
    group.add_argument("--deny", action="store_true", help="only rules that deny")


def resources(args: Namespace) -> list[tuple[ResourceType, str]]:
    """Return the resources that the options name."""
    found = []
    for kind, option in RESOURCES.items():
        given = getattr(args, option.removeprefix("--").replace("-", "_"))
        names = [CLUSTER_NAME] if given is True else given or []
        found += [(kind, name) for name in names]
    for kind, name in found:
        if not name:
            raise UsageError(f"{RESOURCES[kind]}: the name is empty; write '*' for all")
    return found


def operation(text: str) -> Operation:
    """Read the name of an operation, in any case.

    >>> operation("describeconfigs").title
    'DescribeConfigs'
    """
    found = Operation.of(text)
    if found in (Operation.UNKNOWN, Operation.ANY):
        raise ValueError(f"{text!r} is no operation; for all of them write All")
    return found


def check_operation(wanted: Operation, kind: ResourceType) -> None:
    """Raise UsageError for an operation that a type of resource does not have: such a rule would do nothing."""
    if wanted != Operation.ALL and wanted not in SUPPORTED[kind]:
        what = kind.name.lower().replace("_", " ")
        names = ", ".join(each.title for each in SUPPORTED[kind])
        raise UsageError(f"a {what} does not have the operation {wanted.title}; it has {names} and All")


def command(action: str, binding: AclBinding, args: Namespace) -> str:
    """Return the command line that adds or removes one rule."""
    words = ["ottla", "acls", action]
    given = format_addresses(args.bootstrap_server)
    if given != format_addresses(parse_addresses(DEFAULT_BOOTSTRAP)):
        words += ["--bootstrap-server", ",".join(given)]
    if args.command_config is not None:
        words += ["--command-config", str(args.command_config)]
    words += ["--principal", binding.principal, "--operation", binding.operation.title]
    words.append(RESOURCES[binding.resource_type])
    if binding.resource_type != ResourceType.CLUSTER:
        words.append(binding.resource_name)
    if binding.pattern_type == PatternType.PREFIXED:
        words.append("--prefix")
    if binding.permission == Permission.DENY:
        words.append("--deny")
    if binding.host != WILDCARD:
        words += ["--host", binding.host]
    return shlex.join(words)


def as_json(binding: AclBinding) -> dict[str, str]:
    """Return a rule as JSON."""
    return {
        "principal": binding.principal,
        "permission": binding.permission.title,
        "operation": binding.operation.title,
        "resource_type": binding.resource_type.name.lower(),
        "resource_name": binding.resource_name,
        "pattern_type": binding.pattern_type.name.lower(),
        "host": binding.host,
    }


def _host(text: str) -> str:
    if text != WILDCARD and network_of(text) is None:
        raise ValueError(f"{text!r} is not an address such as 10.0.0.1, a network such as 10.0.0.0/8, or '*'")
    return text


def _checked(read: Callable[[str], Any]) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse
