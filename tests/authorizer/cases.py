"""Random rules and questions from a seed, compared with the reference."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.authorizer import reference
from tests.authorizer.reference import Rule

from ottla.security.acls import AclBinding, Operation, PatternType, Permission, ResourceType
from ottla.security.authorizer import Acls, Authorizer, Decision
from ottla.security.principals import parse_principal

TYPES = ("TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER")
OPERATIONS = tuple(each.name for each in Operation if each > Operation.ANY)
NAMES = ("a", "ab", "abc", "abd", "b", "ba", "orders", "orders.eu", "orders.eu.v1", "orders-x", "kafka-cluster", "*")
PRINCIPALS = ("User:alice", "User:bob", "User:*", "Group:alice", "User:CN=etl,O=x:y", "User:ALICE")
HOSTS = ("10.0.0.1", "10.0.1.1", "192.168.7.9", "::1", "2001:db8::5")
NETWORKS = ("10.0.0.0/24", "10.0.0.0/8", "192.168.7.8/29", "0.0.0.0/0", "2001:db8::/32", "::/0", "10.0.0.1/32")
USELESS = ("localhost", "::ffff:10.0.0.1", "0:0:0:0:0:0:0:1", "10.0.0")


@dataclass
class World:
    """Some rules, and an authorizer that has them."""

    rules: list[Rule]
    super_users: list[str]
    default: bool
    authorizer: Authorizer


@dataclass
class Question:
    principal: str
    host: str
    operation: str
    resource_type: str
    name: str


def world(
    seed: int, questions: list[Question], *, kafka: bool = False, make: Callable[..., Authorizer] = Authorizer
) -> World:
    """Make rules by adding and removing at random. For Kafka there are only hosts that it knows.

    The questions are asked meanwhile too: decisions that are remembered must not outlive the rules.
    """
    chance = random.Random(seed)
    hosts = HOSTS[:3] if kafka else HOSTS + NETWORKS + USELESS
    rules: dict[Rule, None] = {}
    acls = Acls()
    super_users = chance.sample(PRINCIPALS, chance.choice((0, 0, 1)))
    default = chance.random() < 0.3
    authorizer = make(acls, super_users=super_users, allow_without_rules=default)
    for _ in range(chance.choice((0, 1, 3, 10, 30))):
        rule = _rule(chance, hosts)
        rules[rule] = None
        acls.add(binding(rule))
        if chance.random() < 0.2:
            for asked in questions[:10]:
                ask(authorizer, asked, any_name=chance.random() < 0.3)
            gone = chance.choice(list(rules))
            del rules[gone]
            acls.remove(binding(gone))
    return World(list(rules), super_users, default, authorizer)


def _rule(chance: random.Random, hosts: tuple[str, ...]) -> Rule:
    return (
        chance.choice(TYPES[:2] if chance.random() < 0.7 else TYPES),
        chance.choice(NAMES),
        chance.choice(("LITERAL", "PREFIXED")),
        chance.choice(PRINCIPALS),
        "*" if chance.random() < 0.5 else chance.choice(hosts),
        "ALL" if chance.random() < 0.2 else chance.choice(OPERATIONS),
        "DENY" if chance.random() < 0.3 else "ALLOW",
    )


def binding(rule: Rule) -> AclBinding:
    kind, name, pattern, principal, host, operation, permission = rule
    return AclBinding(
        ResourceType[kind], name, PatternType[pattern], principal, host, Operation[operation], Permission[permission]
    )


def some_questions(seed: int, number: int, *, kafka: bool = False) -> list[Question]:
    chance = random.Random(~seed)
    return [_question(chance, kafka=kafka) for _ in range(number)]


def _question(chance: random.Random, *, kafka: bool) -> Question:
    return Question(
        # Kafka fails for a client with the name "*".
        chance.choice([each for each in PRINCIPALS if not kafka or each != "User:*"]),
        chance.choice(HOSTS[:3] if kafka else HOSTS),
        chance.choice(OPERATIONS[1:]),
        chance.choice(TYPES[:2] if chance.random() < 0.7 else TYPES),
        chance.choice(NAMES),
    )


def ask(authorizer: Authorizer, asked: Question, *, any_name: bool = False) -> Decision:
    return authorizer.decide(
        parse_principal(asked.principal),
        asked.host,
        Operation[asked.operation],
        ResourceType[asked.resource_type],
        None if any_name else asked.name,
    )


def disagreement(seed: int, questions: int, make: Callable[..., Authorizer] = Authorizer) -> str | None:
    """Compare the answers to some questions about one world; return the first difference."""
    asked_questions = some_questions(seed, questions)
    here = world(seed, asked_questions, make=make)
    for asked in asked_questions:
        about = (asked.principal, asked.host, asked.operation, asked.resource_type)
        expected = reference.allowed(here.rules, here.super_users, here.default, *about, asked.name)
        found = ask(here.authorizer, asked)
        if found.allowed != expected:
            return f"seed {seed}: {asked}: expected {expected}, but {found}; rules {here.rules}"
        if found.rule is not None and not _decides(found, asked):
            return f"seed {seed}: {asked}: {found.rule} does not decide that"
        expected = reference.allowed_on_any(here.rules, here.super_users, here.default, *about)
        found = ask(here.authorizer, asked, any_name=True)
        if found.allowed != expected:
            return f"seed {seed}: {asked} on any: expected {expected}, but {found}; rules {here.rules}"
    return None


def _decides(found: Decision, asked: Question) -> bool:
    """Whether the rule that a decision names leads to this decision on its own."""
    assert found.rule is not None
    kind, name, pattern, principal, host, operation, permission = found.rule
    alone = (kind.name, name, pattern.name, principal, host, operation.name, permission.name)
    about = (asked.principal, asked.host, asked.operation, asked.resource_type, asked.name)
    return permission.name == ("ALLOW" if found.allowed else "DENY") and reference.applies(alone, *about)
