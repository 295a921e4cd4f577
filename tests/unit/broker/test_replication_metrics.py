"""Metrics of a leader and a controller when a follower dies."""

from __future__ import annotations

from pathlib import Path

from ottla.broker.replication_metrics import elections
from ottla.metadata.brokers import fence_broker
from unit.broker.leading import EPOCH, ME, OTHER, THIRD, Leading, leading
from unit.metadata.controlled import Controlled


def values(broker: Leading) -> dict[str, float]:
    lines = broker.node.metrics.registry.render().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


async def test_a_dead_follower_is_seen_in_the_metrics_of_the_leader(tmp_path: Path) -> None:
    async with leading(tmp_path) as broker:
        broker.node.metrics.watch(broker.node, [])
        await broker.create_topic(replicas=((ME, OTHER), (OTHER, THIRD)), min_insync_replicas="2")
        await broker.produce(b"1", b"2", b"3")
        await broker.follow(1)
        before = values(broker)
        names = ("under_replicated_partitions", "under_min_isr_partition_count", "offline_partitions_count")
        assert [before[f"ottla_{name}"] for name in names] == [0, 0, 0]
        assert [before[f"ottla_{name}"] for name in ("leader_count", "partition_count")] == [1, 1]
        assert before['ottla_replica_max_lag{follower="2"}'] == 2
        assert before["ottla_active_controller_count"] == 1
        for broker_id in (OTHER, THIRD):
            reason = f"broker {broker_id} stopped"
            await broker.node.controller.run(fence_broker, broker.node.metadata, broker_id, EPOCH, reason)
        after = values(broker)
        assert [after[f"ottla_{name}"] for name in names] == [1, 1, 1]
        assert after["ottla_isr_shrinks_total"] == before["ottla_isr_shrinks_total"] + 1
        assert after["ottla_isr_expands_total"] == before["ottla_isr_expands_total"]
        assert after["ottla_fenced_broker_count"] == 2


def test_elections_are_counted() -> None:
    cluster = Controlled(assignments=[[1, 2, 3], [2, 3, 1]], min_isr=1, unclean=True)

    def fenced(broker_id: int) -> tuple[int, int]:
        epoch = cluster.metadata.brokers[broker_id].epoch
        outcome = fence_broker(cluster.metadata, broker_id, epoch, f"broker {broker_id} stopped", now=0)
        found = elections(outcome.records, cluster.metadata)
        for record in outcome.records:
            cluster.replay(record)
        return found

    assert fenced(1) == (1, 0)  # Only the first partition had this leader.
    assert fenced(3) == (0, 0)
    cluster.start(3, clean=False)
    assert fenced(2) == (2, 2)  # The last broker may miss records.
