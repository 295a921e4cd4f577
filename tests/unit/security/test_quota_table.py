"""Whom quotas are for, which one counts, and what is refused."""

from __future__ import annotations

import math
from itertools import combinations

import pytest

from ottla.errors import InvalidRequest, KafkaError, UnsupportedVersion
from ottla.security.quotas import (
    ANY,
    CONNECTIONS,
    DEFAULT,
    EXACT,
    PRODUCER_BYTES,
    REQUEST_TIME,
    Entity,
    Filter,
    Limit,
    QuotaTable,
    check,
    entity,
)

ALICE, BOB = ("user", "alice"), ("user", "bob")
ANY_USER, ANY_CLIENT = ("user", None), ("client-id", None)
APP = ("client-id", "app")
#: In Kafka's order: the first one that exists counts.
LEVELS: list[tuple[Entity, tuple[str, str]]] = [
    ((ALICE, APP), ("alice", "app")),
    ((ALICE, ANY_CLIENT), ("alice", "app")),
    ((ALICE,), ("alice", "")),
    ((ANY_USER, APP), ("alice", "app")),
    ((ANY_USER, ANY_CLIENT), ("alice", "app")),
    ((ANY_USER,), ("alice", "")),
    ((APP,), ("", "app")),
    ((ANY_CLIENT,), ("", "app")),
]


@pytest.mark.parametrize(("first", "second"), list(combinations(range(8), 2)))
def test_the_more_specific_quota_counts(first: int, second: int) -> None:
    quotas = {LEVELS[level][0]: {PRODUCER_BYTES: float(level + 1)} for level in (second, first)}
    found = QuotaTable(quotas).limit(PRODUCER_BYTES, "alice", "app")
    assert found == Limit(first + 1.0, *LEVELS[first][1])


def test_each_quota_has_its_own_precedence() -> None:
    table = QuotaTable({(ALICE, APP): {REQUEST_TIME: 5.0}, (ANY_CLIENT,): {PRODUCER_BYTES: 7.0}})
    assert table.limit(PRODUCER_BYTES, "alice", "app") == Limit(7.0, "", "app")
    assert table.limit(REQUEST_TIME, "alice", "app") == Limit(5.0, "alice", "app")
    assert table.limit(REQUEST_TIME, "alice", "other") is None
    assert table.limit("consumer_byte_rate", "alice", "app") is None


def test_a_quota_of_another_does_not_count() -> None:
    table = QuotaTable({(BOB,): {PRODUCER_BYTES: 1.0}, (("client-id", "other"),): {PRODUCER_BYTES: 2.0}})
    assert table.limit(PRODUCER_BYTES, "alice", "app") is None
    assert table.limit(PRODUCER_BYTES, "alice", "") is None


def test_an_address_has_its_own_rate_or_the_default() -> None:
    table = QuotaTable({(("ip", "10.0.0.1"),): {CONNECTIONS: 3.0}, (("ip", None),): {CONNECTIONS: 9.0}})
    assert (table.connections("10.0.0.1"), table.connections("10.0.0.2")) == (3.0, 9.0)
    assert QuotaTable({}).connections("10.0.0.1") is None


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ([], "empty client quota entity"),
        ([("group", "g")], "Unhandled client quota entity type: group"),
        ([ALICE, BOB], "duplicate"),
        ([("user", "")], "Empty user"),
        ([("ip", "127.0.0.1"), ALICE], "cannot be combined"),
        ([("ip", "nowhere.example")], "not a valid IP"),
    ],
)
def test_a_wrong_entity_is_refused(parts: list[tuple[str, str | None]], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        entity(parts)


def test_an_address_is_written_in_one_way() -> None:
    assert entity([("ip", "0:0:0:0:0:0:0:1")]) == (("ip", "::1"),)
    assert entity([("ip", None)]) == (("ip", None),)


@pytest.mark.parametrize(
    ("whom", "name", "value", "says"),
    [
        ((ALICE,), CONNECTIONS, 1, "Invalid configuration key connection_creation_rate for user=alice"),
        ((("ip", "::1"),), PRODUCER_BYTES, 1, "Use connection_creation_rate"),
        ((ALICE,), "producer_byte_rat", 1, "Did you mean producer_byte_rate?"),
        ((ALICE,), PRODUCER_BYTES, 0, "greater than 0"),
        ((ALICE,), PRODUCER_BYTES, -1, "greater than 0"),
        ((ALICE,), PRODUCER_BYTES, math.nan, "greater than 0"),
        ((ALICE,), PRODUCER_BYTES, 1.5, "fractional"),
        ((ALICE,), REQUEST_TIME, math.inf, "Remove it"),
        ((ALICE,), PRODUCER_BYTES, 1e300, "too large"),
        ((("ip", None),), CONNECTIONS, 2.0**31, "too large"),
    ],
)
def test_a_wrong_quota_is_refused(whom: Entity, name: str, value: float, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says.replace("?", r"\?")):
        check(whom, name, value)


def test_a_percentage_may_have_a_fraction() -> None:
    check((ALICE,), REQUEST_TIME, 0.5)


@pytest.mark.parametrize(
    ("components", "kind"),
    [
        ([("", EXACT, "a")], InvalidRequest),
        ([("user", EXACT, "a"), ("user", ANY, None)], InvalidRequest),
        ([("group", EXACT, "a")], UnsupportedVersion),
        ([("user", EXACT, None)], InvalidRequest),
        ([("user", DEFAULT, "a")], InvalidRequest),
        ([("user", ANY, "a")], InvalidRequest),
        ([("user", 3, None)], InvalidRequest),
        ([("ip", ANY, None), ("user", ANY, None)], InvalidRequest),
    ],
)
def test_a_wrong_filter_is_refused(components: list[tuple[str, int, str | None]], kind: type[KafkaError]) -> None:
    with pytest.raises(kind):
        Filter.of(components, strict=False)


@pytest.mark.parametrize(
    ("components", "strict", "found"),
    [
        ([], False, {(ALICE,), (ALICE, APP), (ANY_USER, APP), (APP,)}),
        ([], True, set()),
        ([("user", EXACT, "alice")], False, {(ALICE,), (ALICE, APP)}),
        ([("user", EXACT, "alice")], True, {(ALICE,)}),
        ([("user", DEFAULT, None)], False, {(ANY_USER, APP)}),
        ([("user", ANY, None)], False, {(ALICE,), (ALICE, APP), (ANY_USER, APP)}),
        ([("client-id", ANY, None)], True, {(APP,)}),
        ([("user", ANY, None), ("client-id", EXACT, "app")], True, {(ALICE, APP), (ANY_USER, APP)}),
        ([("user", EXACT, "bob")], False, set()),
    ],
)
def test_a_filter_finds_entities(
    components: list[tuple[str, int, str | None]], strict: bool, found: set[Entity]
) -> None:
    entities: list[Entity] = [(ALICE,), (ALICE, APP), (ANY_USER, APP), (APP,)]
    assert {whom for whom in entities if Filter.of(components, strict=strict).matches(whom)} == found
