"""What is wrong with the partitions of a cluster. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ottla.clients.admin.values import ClusterDescription, PartitionDescription, TopicDescription
from ottla.types import TopicPartition

OFFLINE = "offline"
UNDER_MIN_ISR = "under min ISR"
UNDER_REPLICATED = "under-replicated"
NOT_PREFERRED = "not led by its first replica"


@dataclass(frozen=True, slots=True)
class Problem:
    """A partition, and the worst that is wrong with it."""

    key: TopicPartition
    what: str
    partition: PartitionDescription
    min_isr: int | None


@dataclass(frozen=True, slots=True)
class Health:
    """The state of a cluster."""

    cluster: ClusterDescription
    controller_epoch: int | None
    topics: int
    partitions: int
    problems: tuple[Problem, ...]
    leads: Mapping[int, int]
    """How many partitions each broker leads."""
    replicas: Mapping[int, int]
    in_sync: Mapping[int, int]
    not_preferred: int

    def count(self, what: str) -> int:
        return sum(problem.what == what for problem in self.problems)


def health_of(
    cluster: ClusterDescription,
    topics: Iterable[TopicDescription],
    min_isr: Mapping[str, int],
    *,
    controller_epoch: int | None = None,
) -> Health:
    """Judge a cluster. `min_isr` has the min.insync.replicas of topics with too few in-sync replicas."""
    found = list(topics)
    every = [(topic.name, one) for topic in found for one in topic.partitions]
    problems = [_problem(name, one, min_isr.get(name)) for name, one in every]
    return Health(
        cluster,
        controller_epoch,
        len(found),
        len(every),
        tuple(sorted((each for each in problems if each is not None), key=_severity)),
        Counter(one.leader.id for _, one in every if one.leader is not None),
        Counter(node.id for _, one in every for node in one.replicas),
        Counter(node.id for _, one in every for node in one.isr),
        sum(one.leader is not None and one.leader.id != one.replicas[0].id for _, one in every),
    )


def lacks_replicas(topic: TopicDescription) -> bool:
    """Whether a partition has replicas that are not in sync."""
    return any(len(one.isr) < len(one.replicas) for one in topic.partitions)


def _problem(topic: str, one: PartitionDescription, min_isr: int | None) -> Problem | None:
    # A partition with fewer replicas than min.insync.replicas needs all of them.
    least = None if min_isr is None else min(min_isr, len(one.replicas))
    if one.leader is None:
        what = OFFLINE
    elif least is not None and len(one.isr) < least:
        what = UNDER_MIN_ISR
    elif len(one.isr) < len(one.replicas):
        what = UNDER_REPLICATED
    else:
        return None
    return Problem(TopicPartition(topic, one.partition), what, one, least)


def _severity(problem: Problem) -> tuple[int, TopicPartition]:
    return (OFFLINE, UNDER_MIN_ISR, UNDER_REPLICATED).index(problem.what), problem.key


def health_json(health: Health) -> dict[str, Any]:
    """The state as JSON."""
    controller = health.cluster.controller
    return {
        "cluster_id": health.cluster.cluster_id,
        "controller": None if controller is None else controller.id,
        "controller_epoch": health.controller_epoch,
        "topics": health.topics,
        "partitions": health.partitions,
        "offline": health.count(OFFLINE),
        "under_min_isr": health.count(UNDER_MIN_ISR),
        "under_replicated": health.count(UNDER_REPLICATED),
        "not_led_by_first_replica": health.not_preferred,
        "brokers": [
            {
                "broker": node.id,
                "address": str(node),
                "rack": node.rack,
                "fenced": node.is_fenced,
                "leads": health.leads.get(node.id, 0),
                "replicas": health.replicas.get(node.id, 0),
                "in_sync": health.in_sync.get(node.id, 0),
            }
            for node in health.cluster.nodes
        ],
    }
