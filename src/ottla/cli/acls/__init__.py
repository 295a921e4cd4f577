"""``ottla acls add|list|remove|test|explain``: who may do what. They work with Apache Kafka too."""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Iterable, Sequence

from ottla.cli.acls import options
from ottla.cli.acls.questions import configure_explain, configure_test, explain, test
from ottla.cli.options import UsageError
from ottla.cli.session import add_action
from ottla.cli.terminal import plural, print_json, table
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.security.acls import (
    WILDCARD,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    wrong_with,
)

_ADD_EPILOG = """\
examples:
  ottla acls add --principal User:etl --operation Read --topic orders
  ottla acls add --principal User:etl --producer --topic orders          write, describe and create it
  ottla acls add --principal User:etl --consumer --topic orders --group etl
  ottla acls add --principal User:etl --operation All --topic staging. --prefix
  ottla acls add --deny --principal 'User:*' --operation Delete --topic '*'
  ottla acls add --principal User:etl --operation Read --topic orders --host 10.0.0.0/8

Apache Kafka knows only single addresses as hosts. A network there matches nobody.
"""
_REMOVE_EPILOG = """\
examples:
  ottla acls remove --principal User:etl --operation Read --topic orders
  ottla acls remove --principal User:etl                                 everything about a principal
  ottla acls remove --topic orders --dry-run                             show what would go
"""
_PRODUCER = (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE)
_CONSUMER = (Operation.READ, Operation.DESCRIBE)


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    _configure_add(add_action(actions, "add", add, "add rules that allow or deny something"))
    _configure_list(add_action(actions, "list", list_, "list rules"))
    _configure_remove(add_action(actions, "remove", remove, "remove rules"))
    configure_test(add_action(actions, "test", test, "check that principals may do some things, and not others"))
    configure_explain(add_action(actions, "explain", explain, "say whether and why a principal may do something"))


# add


def _configure_add(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _ADD_EPILOG
    options.add_principals(parser, required=True)
    options.add_operations(parser)
    for name, help_ in (
        ("--producer", "what a producer needs on topics: Write, Describe, Create"),
        ("--consumer", "what a consumer needs: Read and Describe on topics, Read on groups"),
    ):
        parser.add_argument(name, action="store_true", help=help_)
    options.add_resources(parser)
    options.add_hosts(parser)
    parser.add_argument("--deny", action="store_true", help="deny instead of allow")


async def add(admin: AsyncAdmin, args: Namespace) -> int:
    wanted = list(dict.fromkeys(_bindings(args)))
    for binding in wanted:
        options.check_operation(binding.operation, binding.resource_type)
        if (problem := wrong_with(binding)) is not None:
            raise UsageError(problem)
    await admin.create_acls(wanted)
    if args.json:
        print_json([options.as_json(each) for each in wanted])
    else:
        print("\n".join(f"added: {each}" for each in wanted))
    return 0


def _bindings(args: Namespace) -> Iterable[AclBinding]:
    permission = Permission.DENY if args.deny else Permission.ALLOW
    pattern = PatternType.PREFIXED if args.prefix else PatternType.LITERAL
    resources = options.resources(args)
    if not resources:
        raise UsageError("name a resource: --topic, --group, --transactional-id, --user or --cluster")
    for kind, name in resources:
        operations = _operations(args, kind)
        if not operations:
            raise UsageError(f"--operation says what to allow on {kind.name.lower()} {name}; give at least one")
        # The cluster has one name, so a prefix makes no sense for it.
        own = PatternType.LITERAL if kind == ResourceType.CLUSTER else pattern
        for principal in args.principal:
            for host in args.host or [WILDCARD]:
                for operation in operations:
                    yield AclBinding(kind, name, own, principal, host, operation, permission)


def _operations(args: Namespace, kind: ResourceType) -> Sequence[Operation]:
    """Return the operations for a type of resource. --producer and --consumer have their own for topics and groups."""
    operations: list[Operation] = list(args.operation or ())
    if args.producer and kind in (ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID):
        operations += _PRODUCER if kind == ResourceType.TOPIC else (Operation.WRITE, Operation.DESCRIBE)
    if args.consumer and kind in (ResourceType.TOPIC, ResourceType.GROUP):
        operations += _CONSUMER if kind == ResourceType.TOPIC else (Operation.READ,)
    return operations


# list


def _configure_list(parser: argparse.ArgumentParser) -> None:
    options.add_principals(parser)
    options.add_operations(parser)
    options.add_resources(parser, several="rules that apply to this")
    options.add_permissions(parser)


async def list_(admin: AsyncAdmin, args: Namespace) -> int:
    selected = _filters(args, PatternType.PREFIXED if args.prefix else PatternType.MATCH)
    found = {binding for each in selected for binding in await admin.describe_acls(each)}
    if args.json:
        print_json([options.as_json(each) for each in sorted(found)])
        return 0
    rows = [
        [each.principal, each.permission.title, each.operation.title, each.resource, each.host]
        for each in sorted(found, key=lambda each: (each.principal, each))
    ]
    print(table(["PRINCIPAL", "PERMISSION", "OPERATION", "RESOURCE", "HOST"], rows) if rows else "no rules")
    return 0


def _filters(args: Namespace, pattern: PatternType) -> list[AclFilter]:
    permission = Permission.DENY if args.deny else Permission.ALLOW if args.allow else Permission.ANY
    resources: Sequence[tuple[ResourceType, str | None]] = options.resources(args) or [(ResourceType.ANY, None)]
    hosts = getattr(args, "host", None) or [None]
    return [
        AclFilter(kind, name, pattern if name is not None else PatternType.ANY, principal, host, operation, permission)
        for kind, name in resources
        for principal in args.principal or [None]
        for host in hosts
        for operation in args.operation or [Operation.ANY]
    ]


# remove


def _configure_remove(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _REMOVE_EPILOG
    options.add_principals(parser)
    options.add_operations(parser)
    options.add_resources(parser)
    options.add_hosts(parser)
    options.add_permissions(parser)
    parser.add_argument("--dry-run", action="store_true", help="show the rules, and remove nothing")


async def remove(admin: AsyncAdmin, args: Namespace) -> int:
    if not (options.resources(args) or args.principal or args.host):
        raise UsageError("say which rules to remove: with --principal, --host or a resource such as --topic")
    filters = _filters(args, PatternType.PREFIXED if args.prefix else PatternType.LITERAL)
    if args.dry_run:
        found = {binding for each in filters for binding in await admin.describe_acls(each)}
    else:
        found = {binding for removed in (await admin.delete_acls(filters)).values() for binding in removed}
    if args.json:
        print_json([options.as_json(each) for each in sorted(found)])
        return 0
    for each in sorted(found):
        print(f"{'would remove' if args.dry_run else 'removed'}: {each}")
    if not found:
        print("no rule matches; `ottla acls list` lists them")
    elif not args.dry_run:
        print(plural(len(found), "rule") + " removed")
    return 0
