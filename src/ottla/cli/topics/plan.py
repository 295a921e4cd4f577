"""Plan where replicas go. No I/O.

A plan moves as little as possible: replicas stay where they are if they may. New ones go to racks that the partition
does not use yet, and to the brokers with the fewest replicas. Then the first replicas, which are the preferred
leaders, are spread over the brokers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ottla.cli.options import UsageError
from ottla.types import TopicPartition

Replicas = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a partition is now."""

    replicas: Replicas
    in_sync: Replicas
    leader: int | None


def plan(
    now: Mapping[TopicPartition, Placement],
    wanted: Collection[TopicPartition],
    racks: Mapping[int, str | None],
    *,
    factor: int | None = None,
    without: Collection[int] = (),
) -> dict[TopicPartition, Replicas]:
    """Return the new replicas of those wanted partitions that change.

    `now` has all partitions of the cluster, because new replicas go where few are. `racks` has the brokers that may
    get replicas. Without a `factor` each partition keeps its number of replicas.

    >>> p = TopicPartition("orders", 0)
    >>> plan({p: Placement((1,), (1,), 1)}, [p], {1: None, 2: None, 3: None}, factor=3)
    {TopicPartition(topic='orders', partition=0): (1, 2, 3)}
    """
    brokers = {broker: rack for broker, rack in racks.items() if broker not in without}
    load = Counter(broker for one in now.values() for broker in one.replicas)
    leads = Counter(one.replicas[0] for key, one in now.items() if one.replicas and key not in wanted)
    planned = {}
    for key in wanted:
        placement = now[key]
        count = factor or len(placement.replicas)
        if count > len(brokers):
            raise UsageError(
                f"{key} needs {count} brokers for {count} replicas, but only {len(brokers)} can take them: "
                f"{', '.join(map(str, sorted(brokers))) or 'none'}"
            )
        replicas = _replicas(placement, count, brokers, load, set(without))
        load.subtract(placement.replicas)
        load.update(replicas)
        planned[key] = _with_preferred_leader(replicas, placement, leads)
    return {key: replicas for key, replicas in planned.items() if replicas != now[key].replicas}


def _replicas(
    placement: Placement, count: int, brokers: Mapping[int, str | None], load: Counter[int], without: set[int]
) -> list[int]:
    may_stay = [broker for broker in placement.replicas if broker not in without]
    # What is in sync need not be copied again.
    best_first = sorted(may_stay, key=lambda broker: broker not in placement.in_sync)
    kept = [broker for broker in may_stay if broker in best_first[:count]]
    used = Counter(brokers.get(broker) for broker in kept)
    while len(kept) < count:
        free = [broker for broker in brokers if broker not in kept]
        best = min(free, key=lambda broker: (used[brokers[broker]], load[broker], broker))
        kept.append(best)
        used[brokers[best]] += 1
    return kept


def _with_preferred_leader(replicas: Sequence[int], placement: Placement, leads: Counter[int]) -> Replicas:
    """The replicas, first the one that leads the fewest partitions, or the leader if several do."""
    if set(replicas) == set(placement.replicas):
        leads[placement.replicas[0]] += 1
        return placement.replicas
    first = min(replicas, key=lambda broker: (leads[broker], broker != placement.leader, replicas.index(broker)))
    leads[first] += 1
    return (first, *(broker for broker in replicas if broker != first))
