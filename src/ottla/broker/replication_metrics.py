"""Metrics of replicas, leaders and the controller. Each help text has the name that Kafka gives to the metric."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from ottla.metadata import MetadataRecord, PartitionState
from ottla.metadata.changes import UNCLEAN
from ottla.metadata.records import PartitionsChanged
from ottla.metadata.values import NO_LEADER
from ottla.metrics.registry import SECONDS, Labels, Number, Registry

if TYPE_CHECKING:
    from ottla.broker.node import Node
    from ottla.broker.partition import Partition
    from ottla.metadata import Metadata


class ReplicationMetrics:
    """What a broker counts as a leader, a follower and the controller."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        counter = registry.counter
        self._shrinks = counter("ottla_isr_shrinks_total", "ISRs that lost a member, on their leader (IsrShrinks).")
        self._expands = counter("ottla_isr_expands_total", "ISRs that gained a member, on their leader (IsrExpands).")
        self._bytes_in = counter(
            "ottla_replication_bytes_in_total", "Bytes that this broker copied as a follower (ReplicationBytesIn)."
        )
        self._bytes_out = counter(
            "ottla_replication_bytes_out_total", "Bytes that followers fetched from this broker (ReplicationBytesOut)."
        )
        self._elections = registry.histogram(
            "ottla_leader_election_seconds",
            "Time of decisions that elect leaders, on the controller (LeaderElectionRateAndTimeMs).",
            SECONDS,
        )
        self._unclean = counter(
            "ottla_unclean_leader_elections_total",
            "Elections that may have lost records, on the controller (UncleanLeaderElections).",
        )

    def isr_changed(self, before: PartitionState, after: PartitionState) -> None:
        """Count a change of the ISR of a partition that this broker leads."""
        if before.isr != after.isr:
            self._shrinks.value += not set(before.isr) <= set(after.isr)
            self._expands.value += not set(after.isr) <= set(before.isr)

    def copied(self, size: int) -> None:
        """Count bytes that this broker has copied from a leader."""
        self._bytes_in.value += size

    def sent(self, size: int) -> None:
        """Count bytes that a follower gets."""
        self._bytes_out.value += size

    def elected(self, seconds: float, *, unclean: int) -> None:
        """Count a decision of the controller that elects leaders."""
        self._elections.observe(seconds)
        self._unclean.value += unclean

    def watch(self, node: Node) -> None:
        """Add the gauges."""

        def count(of: Callable[[Partition], bool]) -> Callable[[], Number]:
            return lambda: sum(map(of, node.local()))

        def if_controller(of: Callable[[], int]) -> Callable[[], Number]:
            return lambda: of() if node.controller_id == node.id else 0

        add, family = self._registry.gauge, self._registry.family
        add("ottla_partition_count", "Replicas on this broker (PartitionCount).", count(lambda _: True))
        add("ottla_leader_count", "Partitions that this broker leads (LeaderCount).", count(lambda p: p.is_leader))
        add(
            "ottla_under_replicated_partitions",
            "Partitions that this broker leads with too few replicas in sync (UnderReplicatedPartitions).",
            count(lambda p: p.is_leader and p.state.is_under_replicated),
        )
        add(
            "ottla_under_min_isr_partition_count",
            "Partitions that this broker leads with too few in sync for acks=all (UnderMinIsrPartitionCount).",
            count(lambda p: p.leader is not None and p.leader.is_below_min_isr),
        )
        add(
            "ottla_reassigning_partitions",
            "Partitions that this broker leads and that are being reassigned (ReassigningPartitions).",
            count(lambda p: p.is_leader and p.state.is_reassigning),
        )
        add(
            "ottla_active_controller_count",
            "1 on the controller, 0 on other brokers (ActiveControllerCount).",
            if_controller(lambda: 1),
        )
        add(
            "ottla_offline_partitions_count",
            "Partitions without a leader, on the controller (OfflinePartitionsCount).",
            if_controller(lambda: _offline(node.metadata)),
        )
        add(
            "ottla_fenced_broker_count",
            "Brokers that are not alive, on the controller (FencedBrokerCount).",
            if_controller(lambda: sum(each.is_fenced for each in node.metadata.brokers.values())),
        )
        add(
            "ottla_offline_log_directory_count",
            "Data directories that have failed (OfflineLogDirectoryCount).",
            lambda: len(node.logs.failed_dirs),
        )
        add(
            "ottla_offline_replica_count",
            "Replicas on this broker whose directory has failed (OfflineReplicaCount).",
            lambda: len(node.offline),
        )
        family(
            "ottla_replica_max_lag",
            "The most records that a follower lacks in a partition that this broker leads.",
            lambda: _lags_of_followers(node.local()),
        )
        family(
            "ottla_replica_fetcher_max_lag",
            "The most committed records of a leader that this broker, its follower, lacks in a partition (MaxLag).",
            lambda: _lags_behind_leaders(node),
        )


def elections(records: Iterable[MetadataRecord], metadata: Metadata) -> tuple[int, int]:
    """Return how many leaders records elect that are not replayed yet, and how many of them uncleanly."""
    elected = unclean = 0
    for record in records:
        if isinstance(record, PartitionsChanged) and (topic := metadata.topics.get(record.name)) is not None:
            found = sum(
                state.leader != NO_LEADER and state.leader != topic.states[index].leader
                for index, state in record.states.items()
                if index < topic.partitions
            )
            elected += found
            unclean += found if UNCLEAN in record.reason else 0
    return elected, unclean


def _offline(metadata: Metadata) -> int:
    return sum(state.leader == NO_LEADER for topic in metadata.topics.values() for state in topic.states)


def _lags_of_followers(partitions: Iterable[Partition]) -> Iterator[tuple[Labels, Number]]:
    lags: dict[int, int] = {}
    for partition in partitions:
        if partition.leader is not None:
            end = partition.log.log_end_offset
            for broker_id, progress in partition.leader.followers.items():
                lags[broker_id] = max(lags.get(broker_id, 0), end - max(0, progress.log_end_offset))
    for broker_id, lag in sorted(lags.items()):
        yield {"follower": str(broker_id)}, lag


def _lags_behind_leaders(node: Node) -> Iterator[tuple[Labels, Number]]:
    if node.cluster is not None:
        for broker_id, lag in node.cluster.fetchers.max_lags():
            yield {"leader": str(broker_id)}, lag
