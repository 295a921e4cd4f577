"""Where the replicas of new partitions go."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.metadata.controlled import Controlled

from ottla import errors
from ottla.metadata.placement import place
from ottla.metadata.values import BrokerState

racks = st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=9)


def brokers(*racks: str | None, dead: tuple[int, ...] = ()) -> list[BrokerState]:
    return [BrokerState(number, 1, (), rack, number in dead) for number, rack in enumerate(racks, 1)]


@given(racks, st.integers(1, 9), st.integers(0, 2**128), st.integers(1, 60))
def test_replicas_are_different_brokers_in_as_many_racks_as_possible(
    racks: list[str | None], factor: int, start: int, count: int
) -> None:
    factor = min(factor, len(racks))
    for replicas in place(brokers(*racks), range(count), factor, start=start):
        assert len(set(replicas)) == factor
        assert len({racks[each - 1] for each in replicas}) == min(factor, len(set(racks)))


@given(racks, st.integers(0, 2**128))
def test_every_broker_leads_as_many_partitions(racks: list[str | None], start: int) -> None:
    placed = place(brokers(*racks), range(len(racks) * 3), 1, start=start)
    assert set(Counter(replicas[0] for replicas in placed).values()) == {3}


@pytest.mark.parametrize("factor", [2, 3])
def test_replicas_are_even_and_the_heirs_of_a_leader_are_many(factor: int) -> None:
    placed = place(brokers("a", "b", "c", "a", "b", "c"), range(60), factor, start=5)
    assert set(Counter(each for replicas in placed for each in replicas).values()) == {10 * factor}
    assert len({replicas[1] for replicas in placed if replicas[0] == 1}) == 4


def test_the_same_start_gives_the_same_places_and_another_one_others() -> None:
    cluster = brokers(None, None, None)
    assert place(cluster, range(9), 2, start=7) == place(cluster, range(9), 2, start=7)
    assert place(cluster, range(9), 2, start=7) != place(cluster, range(9), 2, start=8)


def test_later_partitions_go_on_where_the_first_ones_ended() -> None:
    cluster = brokers("a", "b", None, "a")
    whole = place(cluster, range(12), 3, start=9)
    assert place(cluster, range(4), 3, start=9) + place(cluster, range(4, 12), 3, start=9) == whole


@given(racks, st.sets(st.integers(1, 9)), st.integers(0, 99))
def test_the_dead_come_last(racks: list[str | None], dead: set[int], start: int) -> None:
    dead &= set(range(1, len(racks)))  # The last one is alive.
    alive = len(racks) - len(dead)
    for factor in range(1, len(racks) + 1):
        for replicas in place(brokers(*racks, dead=tuple(dead)), range(5), factor, start=start):
            assert [each in dead for each in replicas] == [number >= alive for number in range(factor)]


@pytest.mark.parametrize(
    ("factor", "message"),
    [
        (0, "use at least 1, or -1 for the default"),
        (-2, "use at least 1"),
        (4, "needs 4 brokers, but there are 3. Use a replication factor of at most 3"),
    ],
)
def test_replication_factors_that_cannot_be(factor: int, message: str) -> None:
    with pytest.raises(errors.InvalidReplicationFactor, match=message):
        place(brokers(None, None, None), range(1), factor, start=0)


def test_somebody_must_be_alive() -> None:
    with pytest.raises(errors.InvalidReplicationFactor, match="No broker is alive"):
        place(brokers(None, None, dead=(1, 2)), range(1), 1, start=0)
    with pytest.raises(errors.InvalidReplicationFactor, match="needs 1 brokers, but there are 0"):
        place([], range(1), 1, start=0)


def test_a_topic_can_be_created_while_a_broker_is_down() -> None:
    cluster = Controlled(min_isr=2)
    cluster.fence(3)
    cluster.run(cluster.metadata.create_topic, "orders", UUID(int=3), 2, {}, replication_factor=3)
    cluster.run(cluster.metadata.add_partitions, "orders", 3)
    for index in range(3):
        state = cluster.state(index)
        assert (sorted(state.replicas), sorted(state.isr), state.elr) == ([1, 2, 3], [1, 2], ())
        assert state.leader == state.replicas[0] != 3
        assert cluster.reasons(index) == ["created while not all replicas were alive"]


def test_the_first_living_replica_of_an_assignment_leads() -> None:
    cluster = Controlled()
    cluster.fence(3)
    cluster.run(cluster.metadata.create_topic, "orders", UUID(int=3), 1, {}, assignments=[[3, 2]])
    assert (cluster.state().replicas, cluster.state().isr, cluster.state().leader) == ((3, 2), (2,), 2)


@pytest.mark.parametrize(
    ("assignments", "problem"),
    [
        ([[1, 2], [1]], r"The replicas \[1\] are 1, but other partitions of the topic have 2"),
        ([[]], "is empty"),
        ([[1, 1]], "twice"),
        ([[1, 7]], r"the brokers are \[1, 2, 3\]"),
        ([[3]], r"None of the brokers \[3\] is alive"),
    ],
)
def test_assignments_that_cannot_be(assignments: list[list[int]], problem: str) -> None:
    cluster = Controlled()
    cluster.fence(3)
    create = cluster.metadata.create_topic
    with pytest.raises(errors.InvalidReplicaAssignment, match=problem):
        create("orders", UUID(int=3), len(assignments), {}, assignments=assignments, now=0)


def test_new_partitions_have_as_many_replicas_as_the_old_ones() -> None:
    cluster = Controlled(assignments=[[1, 2]])
    with pytest.raises(errors.InvalidReplicaAssignment, match="other partitions of the topic have 2"):
        cluster.metadata.add_partitions("orders", 2, assignments=[[1, 2, 3]], now=0)
    cluster.run(cluster.metadata.add_partitions, "orders", 2, assignments=[[3, 1]])
    assert cluster.state(1).replicas == (3, 1)
