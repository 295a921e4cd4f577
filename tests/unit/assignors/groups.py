"""Groups to try assignors on, and the measures for their properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from hypothesis import strategies as st

from ottla.assignors import Assignment, Partitions, Subscription


@dataclass(frozen=True)
class Group:
    """Topics with their partitions, and members with their topics and previous partitions."""

    partitions: dict[str, int]
    topics: dict[str, tuple[str, ...]]
    owned: dict[str, dict[str, list[int]]]

    def subscriptions(self) -> dict[str, Subscription]:
        return {
            member: Subscription(topics, owned_partitions=self.owned.get(member, {}), generation=3)
            for member, topics in self.topics.items()
        }


@st.composite
def groups(draw: st.DrawFn, *, max_topics: int = 4, max_members: int = 5, max_partitions: int = 6) -> Group:
    topics = [f"t{number}" for number in range(draw(st.integers(1, max_topics)))]
    partitions = {topic: draw(st.integers(0, max_partitions)) for topic in topics}
    members = [f"m{number}" for number in range(draw(st.integers(1, max_members)))]
    some = st.lists(st.sampled_from(topics), unique=True).map(tuple)
    equal = draw(st.booleans())
    subscribed = {member: tuple(topics) if equal else draw(some) for member in members}
    owned: dict[str, dict[str, list[int]]] = {member: {} for member in members}
    for topic in topics:
        for number in range(partitions[topic]):
            owner = draw(st.sampled_from([*members, None]))
            if owner is not None:
                owned[owner].setdefault(topic, []).append(number)
    return Group(partitions, subscribed, owned)


def given(assignment: Mapping[str, Assignment]) -> dict[str, Partitions]:
    return {member: each.partitions for member, each in assignment.items()}


def flat(partitions: Partitions) -> set[tuple[str, int]]:
    return {(topic, number) for topic, numbers in partitions.items() for number in numbers}


def sizes(assignment: Mapping[str, Partitions]) -> dict[str, int]:
    return {member: sum(map(len, partitions.values())) for member, partitions in assignment.items()}


def unevenness(assignment: Mapping[str, Partitions]) -> int:
    """The sum of the differences of all pairs of members: Kafka's balance score."""
    return sum(abs(one - other) for one, other in combinations(sizes(assignment).values(), 2))


def moves(owned: Mapping[str, Partitions], assignment: Mapping[str, Partitions]) -> int:
    """How many partitions left the member that had them."""
    return sum(len(flat(had) - flat(assignment.get(member, {}))) for member, had in owned.items())


def table(text: str) -> dict[str, set[tuple[str, int]]]:
    """Parse the readable form ``C0: t0p0 t1p1; C1: t0p1``."""
    rows = (row.split(":") for row in text.split(";"))
    return {
        member.strip(): {(topic, int(number)) for topic, number in (cell.split("p") for cell in cells.split())}
        for member, cells in rows
    }


def as_table(assignment: Mapping[str, Assignment]) -> dict[str, set[tuple[str, int]]]:
    return {member: flat(each.partitions) for member, each in assignment.items()}
