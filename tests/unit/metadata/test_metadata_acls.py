"""ACLs in the metadata: what the controller accepts, and what survives a restart."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla import errors
from ottla.metadata import Metadata
from ottla.metadata.acls import MAX_RULES_PER_REQUEST, create_acls, delete_acls
from ottla.metadata.records import from_json, to_json
from ottla.security.acls import AclBinding, AclFilter, Operation, PatternType, Permission, ResourceType

ORDERS = AclBinding(ResourceType.TOPIC, "orders", principal="User:etl", operation=Operation.READ)
PREFIXED = AclBinding(ResourceType.GROUP, "etl-", PatternType.PREFIXED, "User:ü", "10.0.0.0/8", Operation.ALL)


def run(metadata: Metadata, operation: Any, argument: Any) -> Any:
    outcome = operation(metadata, argument, now=0)
    for record in outcome.records:
        metadata.replay(record)
    return outcome.response


def test_rules_survive_a_restart_and_a_snapshot() -> None:
    metadata, restarted = Metadata(), Metadata()
    assert run(metadata, create_acls, [ORDERS, PREFIXED, ORDERS]) == [None, None, None]
    for record in metadata.snapshot():
        restarted.replay(from_json(json.loads(json.dumps(to_json(record)))))
    assert list(restarted.acls) == [ORDERS, PREFIXED]
    assert [type(each) for each in next(iter(restarted.acls))] == [type(each) for each in ORDERS]
    index = restarted.acls
    restarted.reset()
    assert index is restarted.acls
    assert not list(index)


def test_a_wrong_rule_does_not_stop_the_others() -> None:
    metadata = Metadata()
    first, second = run(metadata, create_acls, [ORDERS._replace(permission=Permission.ANY), ORDERS])
    assert isinstance(first, errors.InvalidRequest)
    assert second is None
    assert list(metadata.acls) == [ORDERS]


def test_a_rule_that_is_too_large_does_not_stop_the_others() -> None:
    metadata = Metadata()
    first, second = run(metadata, create_acls, [ORDERS._replace(resource_name="x" * 1_000_000), ORDERS])
    assert isinstance(first, errors.PolicyViolation)
    assert second is None
    assert list(metadata.acls) == [ORDERS]


def test_filters_delete_what_they_select() -> None:
    metadata = Metadata()
    run(metadata, create_acls, [ORDERS, PREFIXED])
    unknown = AclFilter(operation=Operation.UNKNOWN)
    found = run(metadata, delete_acls, [AclFilter(principal="User:etl"), AclFilter(principal="User:x"), unknown])
    assert found[:2] == [[ORDERS], []]
    assert str(found[2]) == "The filter has an unknown operation."
    assert list(metadata.acls) == [PREFIXED]


def test_a_rule_that_is_there_already_writes_nothing() -> None:
    metadata = Metadata()
    run(metadata, create_acls, [ORDERS])
    assert create_acls(metadata, [ORDERS], now=0).records == ()


def test_one_request_changes_only_so_many_rules() -> None:
    metadata = Metadata()
    rules = [ORDERS._replace(resource_name=f"t{number}") for number in range(MAX_RULES_PER_REQUEST + 1)]
    with pytest.raises(errors.PolicyViolation):
        create_acls(metadata, rules, now=0)
    run(metadata, create_acls, rules[1:])
    run(metadata, create_acls, rules[:1])
    with pytest.raises(errors.PolicyViolation):
        delete_acls(metadata, [AclFilter()], now=0)
