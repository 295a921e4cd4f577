"""Where replicas go when there shall be more, fewer, or none on some broker."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.options import UsageError
from ottla.cli.topics.plan import Placement, plan
from ottla.types import TopicPartition

NO_RACKS: dict[int, str | None] = dict.fromkeys([1, 2, 3])


def keys(count: int, topic: str = "orders") -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(count)]


def placed(*replicas: int, in_sync: tuple[int, ...] | None = None) -> Placement:
    return Placement(replicas, replicas if in_sync is None else in_sync, replicas[0])


def test_a_single_broker_grows_to_three_and_the_leaders_are_spread() -> None:
    wanted = keys(6)
    planned = plan(dict.fromkeys(wanted, placed(1)), wanted, NO_RACKS, factor=3)
    assert all(sorted(replicas) == [1, 2, 3] for replicas in planned.values())
    assert Counter(replicas[0] for replicas in planned.values()) == {1: 2, 2: 2, 3: 2}


def test_replicas_stay_where_they_are() -> None:
    wanted = keys(2)
    now = {wanted[0]: placed(3, 1), wanted[1]: placed(1, 2)}
    assert plan(now, wanted, NO_RACKS, factor=2) == {}
    assert {
        key: set(replicas) - set(now[key].replicas) for key, replicas in plan(now, wanted, NO_RACKS, factor=3).items()
    } == {
        wanted[0]: {2},
        wanted[1]: {3},
    }


def test_what_is_not_in_sync_is_dropped_first() -> None:
    (key,) = keys(1)
    assert plan({key: placed(1, 2, 3, in_sync=(1, 3))}, [key], NO_RACKS, factor=2) == {key: (1, 3)}


def test_other_racks_are_preferred() -> None:
    (key,) = keys(1)
    racks = {1: "a", 2: "a", 3: "b", 4: "a"}
    assert set(plan({key: placed(1)}, [key], racks, factor=2)[key]) == {1, 3}


def test_new_replicas_go_where_few_are() -> None:
    (key,) = keys(1)
    busy = dict.fromkeys(keys(5, "other"), placed(2))
    assert set(plan({key: placed(1), **busy}, [key], NO_RACKS, factor=2)[key]) == {1, 3}


def test_a_broker_is_emptied() -> None:
    wanted = keys(3)
    now = {wanted[0]: placed(1, 2), wanted[1]: placed(3, 1), wanted[2]: placed(2, 3)}
    planned = plan(now, wanted, NO_RACKS, without=[3])
    assert {key: set(replicas) for key, replicas in planned.items()} == {wanted[1]: {1, 2}, wanted[2]: {1, 2}}


def test_too_few_brokers() -> None:
    (key,) = keys(1)
    with pytest.raises(UsageError, match="orders-0 needs 4 brokers for 4 replicas, but only 3 can take them: 1, 2, 3"):
        plan({key: placed(1)}, [key], NO_RACKS, factor=4)


@given(
    st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=5, unique=True), min_size=1, max_size=12),
    st.integers(1, 4),
    st.sets(st.integers(1, 5), max_size=1),
)
def test_each_plan_has_the_wanted_number_of_different_brokers(
    replicas: list[list[int]], factor: int, without: set[int]
) -> None:
    wanted = keys(len(replicas))
    now = {key: placed(*each) for key, each in zip(wanted, replicas, strict=True)}
    planned = plan(now, wanted, dict.fromkeys(range(1, 6)), factor=factor, without=without)
    for key in wanted:
        after = planned.get(key, now[key].replicas)
        assert len(set(after)) == len(after) == factor
        assert not without & set(after)
        assert len(set(after) & set(now[key].replicas)) == min(factor, len(set(now[key].replicas) - without))
