"""Which brokers get the replicas of new partitions.

The brokers stand in a circle in which racks alternate. The leaders of partitions go around it. The other replicas of a
partition are the next brokers of the circle, first one of each rack that the partition is not in yet. After each round
the distance between a leader and the others grows. So if a broker fails, its leaderships go to many others.

Brokers that are not alive get replicas only if there are not enough others, and never the first one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import zip_longest

from ottla import errors
from ottla.metadata.values import BrokerState


def place(
    brokers: Collection[BrokerState], partitions: range, replication_factor: int, *, start: int
) -> list[tuple[int, ...]]:
    """Return the replicas of new partitions. ``start`` chooses where on the circle the first partition begins.

    >>> brokers = [BrokerState(id, 1, (), rack) for id, rack in [(1, "a"), (2, "a"), (3, "b"), (4, "b")]]
    >>> place(brokers, range(3), 2, start=0)
    [(1, 3), (3, 2), (2, 4)]
    """
    _check(brokers, replication_factor)
    circle = _circle(each for each in brokers if each.is_active)
    reserve = _circle(each for each in brokers if not each.is_active)
    racks = {each.broker_id: each.rack for each in brokers}
    placed = []
    for index in partitions:
        rounds, first = divmod(start + index, len(circle))
        others = _turned(circle, first)[1:]
        order = [circle[first], *_turned(others, rounds), *_turned(reserve, start + index)]
        alive = _spread(order[: len(circle)], racks)
        placed.append(tuple([*alive, *order[len(circle) :]][:replication_factor]))
    return placed


def check_replicas(brokers: Mapping[int, BrokerState], replicas: Sequence[int]) -> None:
    """Raise InvalidReplicaAssignment unless these are different brokers of the cluster.

    >>> check_replicas({1: BrokerState(1, 1, ())}, [1])
    """
    if not replicas:
        raise errors.InvalidReplicaAssignment("The list of replicas is empty. Name at least one broker.")
    if len(set(replicas)) < len(replicas):
        raise errors.InvalidReplicaAssignment(f"The replicas {list(replicas)} name a broker twice.")
    if not brokers.keys() >= set(replicas):
        known = sorted(brokers)
        which = f"the only broker is {known[0]}" if len(known) == 1 else f"the brokers are {known}"
        raise errors.InvalidReplicaAssignment(f"The replicas {list(replicas)} are not available; {which}.")


def check_assignments(
    brokers: Mapping[int, BrokerState], assignments: Sequence[Sequence[int]], replication_factor: int | None = None
) -> None:
    """Raise InvalidReplicaAssignment unless new partitions can have these replicas."""
    for replicas in assignments:
        check_replicas(brokers, replicas)
        factor = len(assignments[0]) if replication_factor is None else replication_factor
        if len(replicas) != factor:
            raise errors.InvalidReplicaAssignment(
                f"The replicas {list(replicas)} are {len(replicas)}, but other partitions of the topic have {factor}. "
                f"Give all partitions the same number."
            )
        if not any(brokers[each].is_active for each in replicas):
            raise errors.InvalidReplicaAssignment(
                f"None of the brokers {list(replicas)} is alive. Name at least one that is."
            )


def _check(brokers: Collection[BrokerState], replication_factor: int) -> None:
    if replication_factor <= 0:
        raise errors.InvalidReplicationFactor(
            f"The replication factor is {replication_factor}; use at least 1, or -1 for the default."
        )
    count = len(brokers)
    if replication_factor > count:
        raise errors.InvalidReplicationFactor(
            f"A replication factor of {replication_factor} needs {replication_factor} brokers, but there "
            f"{'is' if count == 1 else 'are'} {count}. "
            f"Use a replication factor of {'1' if count <= 1 else f'at most {count}'}."
        )
    if not any(each.is_active for each in brokers):
        raise errors.InvalidReplicationFactor(
            "No broker is alive, or all are shutting down, so nobody could lead. Try again when one has started."
        )


def _circle(brokers: Iterable[BrokerState]) -> list[int]:
    """Return the brokers so that racks alternate."""
    racks: dict[str, list[int]] = {}
    for each in sorted(brokers, key=lambda each: (each.rack or "", each.broker_id)):
        racks.setdefault(each.rack or "", []).append(each.broker_id)
    return [each for column in zip_longest(*racks.values()) for each in column if each is not None]


def _turned(circle: list[int], steps: int) -> list[int]:
    steps = steps % len(circle) if circle else 0
    return circle[steps:] + circle[:steps]


def _spread(order: list[int], racks: Mapping[int, str | None]) -> list[int]:
    """Take the first broker of each rack, then the second of each, and so on."""
    seen: Counter[str | None] = Counter()
    turns = []
    for each in order:
        turns.append(seen[racks[each]])
        seen[racks[each]] += 1
    return [each for _, each in sorted(zip(turns, order, strict=True), key=lambda pair: pair[0])]
