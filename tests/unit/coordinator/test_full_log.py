"""A log that did not take what a group decided, with the runner that the broker has: nobody stays in it for good."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any
from uuid import UUID

import pytest
from group_context import GROUP, REBALANCE, SESSION, protocols
from tests.virtual import AppendFailed, VirtualJournal

from ottla.coordinator import messages as m
from ottla.coordinator.config import GroupConfig
from ottla.coordinator.consumer.messages import ConsumerHeartbeatRequest
from ottla.coordinator.coordinator import Coordinator
from ottla.coordinator.group import TopicInfo
from ottla.coordinator.serde import encode
from ottla.runtime.runner import Runner
from ottla.testing import ManualClock


class Shard:
    """A coordinator, its runner and their clock."""

    def __init__(self) -> None:
        ids, topics = count(1), {"orders": TopicInfo(UUID(int=1), 4)}
        config = GroupConfig(group_initial_rebalance_delay_ms=0)
        self.coordinator = Coordinator(config, new_id=lambda: str(next(ids)), topics=lambda: topics)
        self.is_full, self.clock = False, ManualClock()
        log = VirtualJournal([], encode, rejects=lambda: self.is_full)
        self.runner = Runner(self.coordinator, log, self.clock)

    async def refused(self, operation: Callable[..., Any], request: Any) -> None:
        self.is_full = True
        with pytest.raises(AppendFailed):
            await self.runner.run(operation, request)
        self.is_full = False

    async def sleep(self, duration: int) -> None:
        self.clock.advance(duration)
        self.runner.fire_due(self.clock.now())

    async def beat(self, member: str, epoch: int) -> int:
        return (await self.runner.run(self.coordinator.consumer_heartbeat, heartbeat(member, epoch))).member_epoch

    async def classic_member(self) -> str:
        request = m.JoinRequest(
            group_id=GROUP,
            member_id="",
            client_id="client",
            client_host="/127.0.0.1",
            session_timeout=SESSION,
            rebalance_timeout=REBALANCE,
            protocol_type="consumer",
            protocols=protocols("range"),
            requires_known_member_id=False,
        )
        joining = asyncio.ensure_future(self.runner.run(self.coordinator.join, request))
        await asyncio.sleep(0)
        await self.sleep(0)
        joined = await joining
        assert (joined.error_code, joined.generation_id) == (0, 1)
        return str(joined.member_id)

    async def sync(self, member: str, generation: int) -> None:
        request = m.SyncRequest(group_id=GROUP, generation_id=generation, member_id=member)
        await self.runner.run(self.coordinator.sync, request)

    @property
    def state(self) -> str:
        return str(self.coordinator.groups[GROUP].state)


def heartbeat(member: str, epoch: int) -> ConsumerHeartbeatRequest:
    joins = {"rebalance_timeout": 60_000, "subscribed_topic_names": ("orders",), "topic_partitions": ()}
    fields: dict[str, Any] = joins if epoch == 0 else {}
    return ConsumerHeartbeatRequest(group_id=GROUP, member_id=member, member_epoch=epoch, **fields)


@pytest.fixture
def shard() -> Iterator[Shard]:
    shard = Shard()
    yield shard
    shard.runner.close()


async def test_a_consumer_whose_leave_could_not_be_written_is_gone_after_its_session(shard: Shard) -> None:
    await shard.beat("a", 0)
    await shard.refused(shard.coordinator.consumer_heartbeat, heartbeat("a", -1))
    assert shard.state != "Empty"
    await shard.sleep(shard.coordinator.config.group_consumer_session_timeout_ms)
    assert shard.state == "Empty"


async def test_a_classic_group_whose_last_leave_could_not_be_written_is_empty_in_time(shard: Shard) -> None:
    member = await shard.classic_member()
    await shard.sync(member, 1)
    await shard.refused(shard.coordinator.leave, m.LeaveRequest(group_id=GROUP, members=(m.LeavingMember(member),)))
    await shard.sleep(REBALANCE)
    assert shard.state == "Empty"


async def test_a_classic_member_that_dies_after_an_upgrade_could_not_be_written_is_removed(shard: Shard) -> None:
    member = await shard.classic_member()
    await shard.sync(member, 1)
    await shard.refused(shard.coordinator.consumer_heartbeat, heartbeat("b", 0))
    await shard.sleep(SESSION)
    assert shard.state == "Empty"


async def test_a_member_whose_assignment_could_not_be_written_is_removed_if_it_stays_away(shard: Shard) -> None:
    member = await shard.classic_member()
    await shard.refused(shard.coordinator.sync, m.SyncRequest(group_id=GROUP, generation_id=1, member_id=member))
    assert shard.state == "PreparingRebalance"
    await shard.sleep(max(SESSION, REBALANCE))
    assert shard.state == "Empty"
