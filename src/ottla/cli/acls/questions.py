"""``ottla acls explain`` and ``ottla acls test``: may a principal do something, and which rule decides?

The answer comes from the rules of the cluster, its super.users and allow.everyone.if.no.acl.found.
"""

from __future__ import annotations

import argparse
import shlex
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ottla.cli.acls import options
from ottla.cli.options import UsageError
from ottla.cli.terminal import plural, print_json
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.values import ConfigResource
from ottla.errors import AuthorizationError, SecurityDisabled
from ottla.security.acls import CLUSTER_NAME, AclBinding, Operation, ResourceType, address_of
from ottla.security.authorizer import Acls, Authorizer, Decision
from ottla.security.principals import parse_principal

LOCAL = "127.0.0.1"
_EXPLAIN_EPILOG = """\
examples:
  ottla acls explain --principal User:etl --operation Write --topic orders
  ottla acls explain --principal User:etl --operation Read --group etl --host 10.1.2.3
"""
_TEST_EPILOG = """\
examples:
  ottla acls test --principal User:etl --operation Read --operation Describe --topic orders
  ottla acls test --denied --principal User:guest --operation Read --topic '*'
  ottla acls test --file permissions.txt

Each line of the file is a question with the answer that it must have. A host may follow:
  allowed User:etl Read topic orders
  denied  User:etl Write topic orders 10.1.2.3
  denied  User:etl Alter cluster

The exit code is 0 if all answers are right, and 1 if not.
"""
_EXAMPLE = "Write a line like: allowed User:etl Read topic orders"
_CONFIGS = ("super.users", "allow.everyone.if.no.acl.found")


class Question(NamedTuple):
    principal: str
    operation: Operation
    resource_type: ResourceType
    name: str
    host: str = LOCAL

    def grant(self) -> AclBinding:
        """Return the rule that would allow it."""
        return AclBinding(self.resource_type, self.name, principal=self.principal, operation=self.operation)


class Rules(NamedTuple):
    """What a cluster decides by."""

    acls: list[AclBinding]
    super_users: frozenset[str]
    allow_without_rules: bool
    unknown: str | None = None
    """What could not be read of the cluster's configs, as a sentence."""

    def decide(self, question: Question, *without: AclBinding) -> Decision:
        rules = Acls(each for each in self.acls if each not in without)
        authorizer = Authorizer(rules, super_users=self.super_users, allow_without_rules=self.allow_without_rules)
        principal, operation, resource_type, name, host = question
        return authorizer.decide(parse_principal(principal), host, operation, resource_type, name)


async def read_rules(admin: AsyncAdmin) -> Rules | None:
    """Return what the cluster decides by; None if it has no authorizer."""
    try:
        acls = await admin.describe_acls()
    except SecurityDisabled:
        return None
    node = (await admin.describe_cluster()).nodes[0]
    resource = ConfigResource.broker(node.id)
    try:
        configs = (await admin.describe_configs([resource]))[resource]
    except AuthorizationError:
        return Rules(acls, frozenset(), False, f"You may not read {' and '.join(_CONFIGS)} of the brokers.")
    if not any(name.startswith("ottla.") for name in configs):
        # Apache Kafka compares hosts as text: a network is nobody's address.
        acls = [each for each in acls if "/" not in each.host]
    values = {name: configs[name].value for name in _CONFIGS if name in configs}
    super_users = frozenset(each.strip() for each in (values.get(_CONFIGS[0]) or "").split(";") if each.strip())
    # Apache Kafka lists them if they are set, but hides their values.
    hidden = [name for name, value in values.items() if value is None]
    unknown = f"The brokers do not tell {' and '.join(hidden)}." if hidden else None
    return Rules(acls, super_users, (values.get(_CONFIGS[1]) or "false").lower() == "true", unknown)


# explain


def configure_explain(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXPLAIN_EPILOG
    _add_questions(parser)


async def explain(admin: AsyncAdmin, args: Namespace) -> int:
    questions = list(_from_options(args))
    if len(questions) != 1:
        raise UsageError("explain takes one principal, one operation and one resource; `ottla acls test` takes several")
    rules = await read_rules(admin)
    question = questions[0]
    decision = None if rules is None else rules.decide(question)
    fixes = [] if rules is None else _fixes(rules, question, args)
    if args.json:
        print_json(_as_json(question, decision) | {"commands": fixes})
        return 0
    print(f"{'yes' if decision is None or decision.allowed else 'no'}: {_sentence(question, decision)}")
    if rules is not None and rules.unknown is not None:
        print(f"{rules.unknown} The answer does not take them into account.")
    if fixes:
        print("To allow it:")
        print("\n".join(f"  {each}" for each in fixes))
    return 0


def _sentence(question: Question, decision: Decision | None) -> str:
    if decision is None:
        return "the cluster has no authorizer, so everyone may do everything."
    principal, operation, resource_type, name, host = question
    return decision.sentence(parse_principal(principal), host, operation, resource_type, name)


def _fixes(rules: Rules, question: Question, args: Namespace) -> list[str]:
    """Return the commands after which the answer is yes: remove what denies, then add what is missing."""
    gone: list[AclBinding] = []
    while not (decision := rules.decide(question, *gone)).allowed and decision.rule is not None:
        gone.append(decision.rule)
    commands = [options.command("remove", each, args) for each in gone]
    # The last rule of a resource that goes can leave the answer to allow.everyone.if.no.acl.found.
    if not decision.allowed:
        commands.append(options.command("add", question.grant(), args))
    return commands


# test


def configure_test(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _TEST_EPILOG
    _add_questions(parser)
    parser.add_argument("--denied", action="store_true", help="everything must be denied, not allowed")
    parser.add_argument("--file", type=Path, metavar="FILE", help="read questions and answers from a file")


async def test(admin: AsyncAdmin, args: Namespace) -> int:
    expected = [(each, not args.denied) for each in _from_options(args)] if args.file is None or args.principal else []
    if args.file is not None:
        expected += _from_file(args.file)
    if not expected and args.file is not None:
        raise UsageError(f"{args.file} has no questions. {_EXAMPLE}")
    if not expected:
        raise UsageError("ask something: --principal, --operation and a resource such as --topic, or --file")
    rules = await read_rules(admin)
    wrong, rows = 0, []
    for question, is_expected in expected:
        decision = None if rules is None else rules.decide(question)
        is_right = (decision is None or decision.allowed) == is_expected
        wrong += not is_right
        rows.append(_as_json(question, decision) | {"ok": is_right})
        if not args.json:
            print(f"{'ok' if is_right else 'WRONG'}: {_sentence(question, decision)}")
    if args.json:
        print_json(rows)
    elif rules is not None and rules.unknown is not None:
        print(f"{rules.unknown} The answers do not take them into account.")
    if not args.json:
        print(f"{plural(len(expected) - wrong, 'answer')} right, {wrong} wrong")
    return 1 if wrong else 0


def _from_file(path: Path) -> list[tuple[Question, bool]]:
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise UsageError(f"--file: cannot read {path} ({error.strerror})") from None
    found = []
    for number, line in enumerate(lines, 1):
        try:
            words = shlex.split(line, comments=True)
            if words:
                found.append(_parse_line(words))
        except ValueError as error:
            raise UsageError(f"{path}:{number}: {error}. {_EXAMPLE}") from None
    return found


def _parse_line(words: list[str]) -> tuple[Question, bool]:
    """
    >>> _parse_line(["denied", "User:etl", "write", "topic", "orders"])[0].operation.name
    'WRITE'
    """
    answers = {"allowed": True, "denied": False}
    if words[0].lower() not in answers:
        raise ValueError(f"{words[0]!r} is neither allowed nor denied")
    if len(words) > 3 and words[3].lower() == "cluster":
        words = [*words[:4], CLUSTER_NAME, *words[4:]]
    if not 5 <= len(words) <= 6:
        raise ValueError("the line does not have an answer, a principal, an operation and a resource")
    question = Question(
        str(parse_principal(words[1])),
        options.operation(words[2]),
        ResourceType.of(words[3]),
        words[4],
        words[5] if len(words) > 5 else LOCAL,
    )
    _check(question)
    return question, answers[words[0].lower()]


def _add_questions(parser: argparse.ArgumentParser) -> None:
    options.add_principals(parser)
    options.add_operations(parser)
    options.add_resources(parser, prefixes=False)
    parser.add_argument("--host", default=LOCAL, metavar="ADDRESS", help=f"of the client (default: {LOCAL})")


def _from_options(args: Namespace) -> Iterator[Question]:
    resources = options.resources(args)
    if not (args.principal and args.operation and resources):
        raise UsageError("a question needs --principal, --operation and a resource such as --topic")
    for principal in args.principal:
        for kind, name in resources:
            for operation in args.operation:
                question = Question(principal, operation, kind, name, args.host)
                try:
                    _check(question)
                except ValueError as error:
                    raise UsageError(str(error)) from None
                yield question


def _check(question: Question) -> None:
    options.check_operation(question.operation, question.resource_type)
    if question.operation == Operation.ALL:
        raise ValueError("a question is about one operation, not about all of them")
    if address_of(question.host) is None:
        raise ValueError(f"{question.host!r} is not the address of a client, such as 10.0.0.1")


def _as_json(question: Question, decision: Decision | None) -> dict[str, object]:
    rule = None if decision is None or decision.rule is None else options.as_json(decision.rule)
    return {
        "principal": question.principal,
        "operation": question.operation.title,
        "resource_type": question.resource_type.name.lower(),
        "resource_name": question.name,
        "host": question.host,
        "allowed": decision is None or decision.allowed,
        "reason": _sentence(question, decision),
        "rule": rule,
    }
