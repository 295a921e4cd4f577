"""Examples with exact results, assignor by assignor."""

from __future__ import annotations

import pytest

from ottla.assignors import Assignor, RangeAssignor, RoundRobinAssignor, StickyAssignor, Subscription
from ottla.assignors.sticky import encode_user_data
from unit.assignors.groups import as_table, given, sizes, table


def assign(assignor: Assignor, partitions: dict[str, int], topics: dict[str, str]) -> dict[str, set[tuple[str, int]]]:
    subscriptions = {member: Subscription(names.split()) for member, names in topics.items()}
    return as_table(assignor.assign(partitions, subscriptions))


def test_range_gives_each_member_a_run_of_each_topic() -> None:
    both = {"C0": "t0 t1", "C1": "t0 t1"}
    assert assign(RangeAssignor(), {"t0": 3, "t1": 3}, both) == table("C0: t0p0 t0p1 t1p0 t1p1; C1: t0p2 t1p2")


@pytest.mark.parametrize(
    ("partitions", "members", "runs"),
    [
        (7, 5, [[0, 1], [2, 3], [4], [5], [6]]),
        (11, 3, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]),
        (10, 3, [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]),
    ],
)
def test_range_gives_the_first_members_one_more(partitions: int, members: int, runs: list[list[int]]) -> None:
    subscriptions = {f"c{number}": Subscription(["t"]) for number in range(members)}
    assignment = RangeAssignor().assign({"t": partitions}, subscriptions)
    assert [each.partitions["t"] for each in assignment.values()] == runs


FIVE = {"c0": "t1 t2", "c1": "t1 t2", "c2": "t1 t2", "c3": "t2", "c4": "t2"}


def test_range_counts_the_subscribers_of_each_topic_by_themselves() -> None:
    assert assign(RangeAssignor(), {"t1": 5, "t2": 7}, FIVE) == table(
        "c0: t1p0 t1p1 t2p0 t2p1; c1: t1p2 t1p3 t2p2 t2p3; c2: t1p4 t2p4; c3: t2p5; c4: t2p6"
    )


def test_roundrobin_deals_partitions_one_by_one() -> None:
    both = {"C0": "t0 t1", "C1": "t0 t1"}
    assert assign(RoundRobinAssignor(), {"t0": 3, "t1": 3}, both) == table("C0: t0p0 t0p2 t1p1; C1: t0p1 t1p0 t1p2")


def test_roundrobin_passes_over_members_that_do_not_subscribe() -> None:
    topics = {"C0": "t0", "C1": "t0 t1", "C2": "t0 t1 t2"}
    assert assign(RoundRobinAssignor(), {"t0": 1, "t1": 2, "t2": 3}, topics) == table(
        "C0: t0p0; C1: t1p0; C2: t1p1 t2p0 t2p1 t2p2"
    )


def test_roundrobin_goes_on_where_the_last_topic_ended() -> None:
    assert assign(RoundRobinAssignor(), {"t1": 5, "t2": 7}, FIVE) == table(
        "c0: t1p0 t1p3 t2p3; c1: t1p1 t1p4 t2p4; c2: t1p2 t2p0 t2p5; c3: t2p1 t2p6; c4: t2p2"
    )


def test_sticky_moves_only_what_a_leaving_member_had() -> None:
    topics = ["t0", "t1", "t2", "t3"]
    partitions = dict.fromkeys(topics, 2)
    first = StickyAssignor().assign(partitions, {member: Subscription(topics) for member in ("C0", "C1", "C2")})
    assert as_table(first) == table("C0: t0p0 t1p1 t3p0; C1: t0p1 t2p0 t3p1; C2: t1p0 t2p1")

    remaining = {
        member: Subscription(topics, user_data=encode_user_data(first[member].partitions, 1)) for member in ("C0", "C2")
    }
    assert as_table(StickyAssignor().assign(partitions, remaining)) == table(
        "C0: t0p0 t1p1 t3p0 t2p0; C2: t1p0 t2p1 t0p1 t3p1"
    )


def test_sticky_is_as_even_as_unequal_subscriptions_allow() -> None:
    subscriptions = {
        "c1": Subscription(["t1"]),
        "c2": Subscription(["t1", "t2"]),
        "c3": Subscription(["t1", "t2", "t3"]),
    }
    assignment = StickyAssignor().assign({"t1": 2, "t2": 3, "t3": 4}, subscriptions)
    assert sizes(given(assignment)) == {"c1": 2, "c2": 3, "c3": 4}
