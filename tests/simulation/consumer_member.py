"""A model of a consumer of the consumer protocol (KIP-848), which uses one heartbeat for everything.

It gives up revoked partitions before it reports that, and only then takes new ones. After a request without a response
it reports everything again, because it cannot know what the coordinator received.
"""

from __future__ import annotations

from typing import Any

from tests.simulation.member import COMMIT, HEARTBEAT, REQUEST_TIMEOUT, Member, error_of
from tests.simulation.world import TOPIC, TOPIC_ID, World

from ottla import errors
from ottla.coordinator import records as r
from ottla.coordinator.consumer.messages import ConsumerHeartbeatRequest, ConsumerHeartbeatResponse

JOIN, LEAVE, LEAVE_FOR_A_WHILE = 0, -1, -2


class ConsumerMember(Member):
    """It gets its assignment epoch by epoch."""

    def __init__(self, world: World, group_id: str, name: str, instance_id: str | None = None) -> None:
        super().__init__(world, group_id, name, instance_id)
        self.member_id = f"{name}-{world.new_id()}"
        self.generation = JOIN
        self.revision = 0
        self._tells_all = True
        self._asking = False
        self._revoking = False
        self._every(HEARTBEAT, self._heartbeat)
        self._every(COMMIT, self._commit)

    @property
    def is_stable(self) -> bool:
        return self.is_alive and self.generation > 0

    @property
    def topics(self) -> tuple[str, ...]:
        return (TOPIC, f"other-{self.revision}") if self.revision else (TOPIC,)

    def leave(self) -> None:
        if not self.is_alive or self.paused_until > self.world.now:
            return
        self.world.say(f"{self} leaves")
        epoch = LEAVE if self.instance_id is None else LEAVE_FOR_A_WHILE
        connection = self.world.connect(lambda: None)
        request = ConsumerHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id
        )
        self.world.call(connection, "consumer_heartbeat", request, REQUEST_TIMEOUT, lambda _: None)
        self._end()

    def change_subscription(self) -> None:
        self.revision += 1
        self._tells_all = True

    def _disconnected(self) -> None:
        self._tells_all = True
        self._asking = False

    # ── the heartbeat ─────────────────────────────────────────────────────────────────────────────────────────────

    def _heartbeat(self) -> None:
        if self._asking:
            return
        self._asking = True
        self._call("consumer_heartbeat", self._request(), self._answered)
        self._tells_all = False

    def _request(self) -> ConsumerHeartbeatRequest:
        tells_all = self._tells_all or self.generation == JOIN
        having = (r.TopicPartitions(TOPIC_ID, tuple(sorted(self.owned))),) if self.owned else ()
        return ConsumerHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.generation,
            instance_id=self.instance_id,
            rebalance_timeout=self.rebalance_timeout if tells_all else -1,
            subscribed_topic_names=self.topics if tells_all else None,
            topic_partitions=having if tells_all else None,
            client_id=self.name,
            client_host="/127.0.0.1",
        )

    def _answered(self, answer: Any) -> None:
        self._asking = False
        error = error_of(answer)
        if error is None:
            self._take(answer)
        elif isinstance(error, errors.UnknownMemberId | errors.FencedMemberEpoch):
            self.world.say(f"{self} joins again: {type(error).__name__}")
            self.generation = JOIN
            self.owned = frozenset()
            self.positions = {}
        elif isinstance(error, errors.CoordinatorNotAvailable | errors.CoordinatorLoadInProgress):
            self._tells_all = True
        elif isinstance(error, errors.UnreleasedInstanceId | errors.FencedInstanceId | errors.GroupIdNotFound):
            self._die(error)
        else:
            raise AssertionError(f"{self} was answered {error!r}: {answer}")

    def _take(self, response: ConsumerHeartbeatResponse) -> None:
        if response.member_epoch != self.generation:
            self.world.say(f"{self} is in epoch {response.member_epoch}")
            self.generation = response.member_epoch
        if response.assignment is None or self._revoking:
            # What arrives while it revokes is sent again after its next report.
            return
        target = frozenset(number for entry in response.assignment for number in entry.partitions)
        if self.owned - target:
            self._revoke(target)
        elif target != self.owned:
            self._have(target)

    def _revoke(self, target: frozenset[int]) -> None:
        """Commit, and give up partitions when the application is ready."""
        self._revoking = True
        self._commit()
        generation, slowness = self.generation, self.world.random.choice([0, 0, 500, 3_000])

        def revoked() -> None:
            self._revoking = False
            if self.generation >= generation > JOIN:
                self._have(target & self.owned)

        self.world.after(max(slowness, self.busy_until - self.world.now), self._when_awake(revoked))

    def _have(self, partitions: frozenset[int]) -> None:
        self._own(partitions)
        self.positions = {number: offset for number, offset in self.positions.items() if number in partitions}
        if partitions - self.positions.keys():
            self._fetch_positions()
        self._tells_all = True
        self._heartbeat()
