"""The authorizer against a slow reference, and the rules that a user must know."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.authorizer.cases import disagreement

from ottla.security.acls import (
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    wrong_with,
)
from ottla.security.authorizer import Acls, Authorizer, Decision, Reason
from ottla.security.principals import parse_principal

ETL = parse_principal("User:etl")
ORDERS = AclBinding(ResourceType.TOPIC, "orders", principal="User:etl", operation=Operation.READ)


def decide(
    *rules: AclBinding,
    operation: Operation = Operation.READ,
    name: str | None = "orders",
    host: str = "10.0.0.1",
    **options: Any,
) -> Decision:
    return Authorizer(Acls(rules), **options).decide(ETL, host, operation, ResourceType.TOPIC, name)


@pytest.mark.parametrize("seed", range(40))
def test_the_authorizer_agrees_with_the_reference(seed: int) -> None:
    assert disagreement(seed, 100) is None


@given(seed=st.integers(0, 2**63))
@settings(max_examples=150, deadline=None)
def test_the_authorizer_agrees_with_the_reference_on_other_worlds(seed: int) -> None:
    assert disagreement(seed, 20) is None


class ForgetsDenyOfPrefixes(Authorizer):
    """A planted bug: rules that deny a prefix are not seen if a literal rule allows."""

    def decide(self, *question: Any) -> Decision:
        found = super().decide(*question)
        if not found.allowed and found.rule is not None and found.rule.pattern_type == PatternType.PREFIXED:
            return Decision(True, Reason.RULE, found.rule)
        return found


class RemembersTooLong(Authorizer):
    """A planted bug: decisions outlive a change of the rules."""

    def __init__(self, acls: Acls, **options: Any) -> None:
        super().__init__(acls, **options)
        acls._watchers.clear()


@pytest.mark.parametrize("broken", [ForgetsDenyOfPrefixes, RemembersTooLong])
def test_the_comparison_finds_a_planted_bug(broken: type[Authorizer]) -> None:
    assert any(disagreement(seed, 100, broken) is not None for seed in range(200))


def test_a_decision_names_its_rule() -> None:
    deny = ORDERS._replace(resource_name="ord", pattern_type=PatternType.PREFIXED, permission=Permission.DENY)
    assert decide(ORDERS) == Decision(True, Reason.RULE, ORDERS)
    assert decide(ORDERS, deny) == Decision(False, Reason.RULE, deny)
    assert decide(ORDERS, deny, super_users=["User:etl"]) == Decision(True, Reason.SUPER_USER)
    assert decide(ORDERS, operation=Operation.WRITE) == Decision(False, Reason.NO_RULE_MATCHES)
    assert decide() == Decision(False, Reason.NO_RULES_DENIED)
    assert decide(allow_without_rules=True) == Decision(True, Reason.NO_RULES_ALLOWED)


def test_one_rule_for_a_resource_ends_the_default_for_everyone() -> None:
    other = ORDERS._replace(principal="User:someone")
    assert not decide(other, allow_without_rules=True).allowed


def test_a_denied_read_does_not_deny_describe() -> None:
    deny = ORDERS._replace(permission=Permission.DENY)
    everything = ORDERS._replace(operation=Operation.ALL)
    assert decide(everything, deny, operation=Operation.DESCRIBE).allowed


@pytest.mark.parametrize(
    ("host", "client", "matches"),
    [
        ("10.0.0.0/8", "10.255.0.1", True),
        ("10.0.0.0/8", "11.0.0.1", False),
        ("10.0.0.1", "::ffff:10.0.0.1", True),
        ("::ffff:10.0.0.0/104", "10.1.1.1", True),
        ("0:0:0:0:0:0:0:1", "::1", True),
        ("2001:db8::/32", "10.0.0.1", False),
        ("localhost", "127.0.0.1", False),
        ("*", "somewhere", True),
        ("somewhere", "somewhere", True),
    ],
)
def test_hosts_are_addresses_and_networks(host: str, client: str, matches: bool) -> None:
    assert decide(ORDERS._replace(host=host), host=client).allowed == matches


def test_a_filter_that_matches_finds_all_rules_of_a_resource() -> None:
    prefixed = ORDERS._replace(resource_name="ord", pattern_type=PatternType.PREFIXED)
    everything = ORDERS._replace(resource_name="*")
    other = ORDERS._replace(resource_name="payments")
    acls = Acls([ORDERS, prefixed, everything, other])
    assert acls.matching(AclFilter(resource_name="orders", pattern_type=PatternType.MATCH)) == [
        ORDERS, prefixed, everything,
    ]  # fmt: skip
    assert acls.matching(AclFilter(resource_name="ord")) == [prefixed]
    assert acls.matching(AclFilter(pattern_type=PatternType.LITERAL)) == [ORDERS, everything, other]
    assert acls.matching(AclFilter(principal="User:nobody")) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"resource_type": ResourceType.ANY}, "The resource type ANY is only for filters. Name one type."),
        ({"pattern_type": PatternType.MATCH}, "The pattern type must be LITERAL or PREFIXED, not MATCH."),
        ({"operation": Operation.ANY}, "The operation ANY is only for filters. Name one operation, or ALL."),
        ({"permission": Permission.ANY}, "The permission must be ALLOW or DENY, not ANY."),
        ({"resource_name": ""}, "The name of the resource is empty."),
        ({"principal": "etl"}, "'etl' is not a principal such as User:alice."),
        ({"host": "10.0.0.0/33"}, "'10.0.0.0/33' is not a network like 10.0.0.0/8."),
        ({"resource_type": ResourceType.CLUSTER}, "The cluster has the name kafka-cluster, not 'orders'."),
        ({"host": "10.0.0.0/33", "principal": "etl"}, "'etl' is not a principal such as User:alice."),
        ({}, None),
    ],
)
def test_a_wrong_rule_is_explained(change: dict[str, Any], problem: str | None) -> None:
    assert wrong_with(ORDERS._replace(**change)) == problem


def test_names_that_clients_choose_are_short_and_harmless_in_a_sentence() -> None:
    question = (Operation.READ, ResourceType.TOPIC, "a\n2026 INFO all is well" + "x" * 1000)
    sentence = Decision(False, Reason.NO_RULES_DENIED).sentence(ETL, "10.0.0.1", *question)
    assert sentence.isprintable()
    assert len(sentence) < 500


def test_decisions_about_many_long_names_are_not_remembered() -> None:
    authorizer = Authorizer(Acls([ORDERS]))
    for number in range(100):
        name = f"{number}" + "x" * 30_000
        assert not authorizer.decide(ETL, "10.0.0.1", Operation.READ, ResourceType.GROUP, name).allowed
    assert not authorizer.remembered
