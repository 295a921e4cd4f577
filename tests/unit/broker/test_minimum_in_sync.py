"""How min.insync.replicas reaches the leaders of a broker: never later than the ISR that was decided by it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ottla.metadata import records as r
from ottla.protocol.apis import ApiKey
from unit.broker.leading import ME, OTHER, THIRD, Leading, leading

MIN_ISR = "min.insync.replicas"
BROKER = 4


async def set_for_all_brokers(broker: Leading, value: str) -> None:
    configs = [{"name": MIN_ISR, "config_operation": 0, "value": value}]
    resource = {"resource_type": BROKER, "resource_name": "", "configs": configs}
    message = {"resources": [resource], "validate_only": False}
    response = await broker.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, message)
    assert response.responses[0].error_code == 0, response.responses[0].error_message


async def shrink(broker: Leading) -> r.PartitionsChanged:
    """Let the metadata have an ISR without the followers, before the broker does anything about it."""
    state = broker.partition().state
    record = r.PartitionsChanged("orders", {0: replace(state, isr=(ME,), partition_epoch=state.partition_epoch + 1)})
    broker.node.metadata.replay(record)
    return record


async def test_a_leader_never_uses_a_new_isr_with_an_older_minimum(tmp_path: Path) -> None:
    """The metadata may be several batches ahead of what the broker has applied."""
    async with leading(tmp_path) as broker:
        await broker.create_topic(replicas=((ME, OTHER, THIRD),))
        broker.node.metadata.replay(r.TopicConfigsSet("orders", {MIN_ISR: "2"}))
        changed = await shrink(broker)
        await broker.node.replicas.apply([changed])
        leader = broker.partition().leader
        assert leader is not None
        assert leader.is_below_min_isr


async def test_nor_with_an_older_minimum_of_the_cluster(tmp_path: Path) -> None:
    async with leading(tmp_path) as broker:
        await broker.create_topic(replicas=((ME, OTHER, THIRD),))
        broker.node.metadata.replay(r.BrokerConfigsSet(True, {MIN_ISR: "2"}))
        changed = await shrink(broker)
        await broker.node.replicas.apply([changed])
        leader = broker.partition().leader
        assert leader is not None
        assert leader.is_below_min_isr


async def test_a_minimum_for_all_brokers_reaches_the_leaders(tmp_path: Path) -> None:
    async with leading(tmp_path) as broker:
        await set_for_all_brokers(broker, "2")
        await broker.create_topic(replicas=((ME, OTHER),))
        changed = await shrink(broker)
        await broker.node.replicas.apply([changed])
        await broker.produce(b"1", acks=1)
        assert broker.partition().high_watermark == 0
        await set_for_all_brokers(broker, "1")
        assert broker.partition().high_watermark == 1
