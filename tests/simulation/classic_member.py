"""A model of a consumer of the classic protocol, like the Java client: eager, with separate heartbeats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.simulation.member import COMMIT, HEARTBEAT, REQUEST_TIMEOUT, Member, error_of
from tests.simulation.world import TOPIC, World

from ottla import errors
from ottla.coordinator import messages as m
from ottla.coordinator.history import owners
from ottla.protocol.codec import encode_data

METADATA = 4_000


class ClassicMember(Member):
    """It joins, syncs, and gives up all partitions before it joins again."""

    def __init__(self, world: World, group_id: str, name: str, instance_id: str | None = None) -> None:
        super().__init__(world, group_id, name, instance_id)
        self.session_timeout = world.random.choice([6_000, 10_000, 10_000, 10_000 if instance_id is None else 45_000])
        # A restarted static leader of an old client does not know that it leads, so nobody would notice new partitions.
        self.is_old = instance_id is None and world.random.random() < 0.2
        self.protocols = world.random.choice([("range",), ("range", "roundrobin"), ("roundrobin", "range")])
        self.state = "joining"
        self.leads = False
        self.partitions_seen = 0
        self.revision = 0
        self._rejoin_is_due = False
        self._join()
        for interval, task in ((HEARTBEAT, self._heartbeat), (COMMIT, self._commit), (METADATA, self._look_at_topic)):
            self._every(interval, task)

    @property
    def is_stable(self) -> bool:
        return self.is_alive and self.state == "stable"

    def leave(self) -> None:
        if not self.is_alive or self.paused_until > self.world.now:
            return
        self.world.say(f"{self} leaves")
        if self.member_id and self.instance_id is None:
            request = m.LeaveRequest(group_id=self.group_id, members=(m.LeavingMember(self.member_id, None, "closed"),))
            connection = self.world.connect(lambda: None)
            self.world.call(connection, "leave", request, REQUEST_TIMEOUT, lambda _: None)
        self._end()

    def change_subscription(self) -> None:
        if self.is_stable:
            self.revision += 1
            self._rejoin("the subscription has changed")

    def _disconnected(self) -> None:
        if self.state != "stable":
            self._later(self._join)

    # ── join ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _rejoin(self, reason: str) -> None:
        """Give up everything and join when the application polls. Until then it keeps working and commits."""
        if self.busy_until > self.world.now:
            if not self._rejoin_is_due:
                self._rejoin_is_due = True
                self.world.after(self.busy_until - self.world.now, self._when_awake(lambda: self._rejoin_now(reason)))
        else:
            self._rejoin_now(reason)

    def _rejoin_now(self, reason: str) -> None:
        self._rejoin_is_due = False
        if self.state != "stable":
            return
        self.world.say(f"{self} joins again: {reason}")
        self._commit()
        self._give_up()
        self._later(self._join)

    def _give_up(self) -> None:
        self.state = "joining"
        self.owned = frozenset()
        self.positions = {}

    def _join(self) -> None:
        self._epoch += 1
        epoch = self._epoch
        self._give_up()
        topics = [TOPIC, f"other-{self.revision}"] if self.revision else [TOPIC]
        subscription = b"\0\0" + encode_data("consumer_protocol_subscription", 0, {"topics": topics})
        request = m.JoinRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.name,
            client_host="/127.0.0.1",
            session_timeout=self.session_timeout,
            rebalance_timeout=self.rebalance_timeout,
            protocol_type="consumer",
            protocols=tuple(m.MemberProtocol(name, subscription) for name in self.protocols),
            requires_known_member_id=not self.is_old,
            supports_skipping_assignment=not self.is_old,
        )
        timeout = self.rebalance_timeout + 5_000
        self._call("join", request, lambda answer: self._joined(answer) if epoch == self._epoch else None, timeout)

    def _joined(self, answer: Any) -> None:
        error = error_of(answer)
        if isinstance(error, errors.MemberIdRequired):
            self.member_id = answer.member_id
            self._join()
        elif isinstance(error, errors.UnknownMemberId):
            self.member_id = ""
            self._later(self._join)
        elif isinstance(error, errors.RebalanceInProgress | errors.CoordinatorNotAvailable | errors.NotCoordinator):
            self._later(self._join)
        elif error is not None:
            self._die(error)
        else:
            self._begin_generation(answer)

    def _begin_generation(self, response: m.JoinResponse) -> None:
        self.state = "syncing"
        self.member_id = response.member_id
        self.generation = response.generation_id
        self.leads = response.leader == self.member_id
        assignments: tuple[m.MemberAssignment, ...] = ()
        if self.leads and not response.skip_assignment:
            self.partitions_seen = self.world.partitions
            assignments = _assign([member.member_id for member in response.members], self.partitions_seen)
        thinking = self.world.random.choice([0, 0, 0, 200, 2_000, 12_000]) if self.leads else 0
        delay = max(thinking, self.busy_until - self.world.now)
        self.world.after(delay, self._when_awake(self._sync_with(assignments)))

    def _sync_with(self, assignments: tuple[m.MemberAssignment, ...]) -> Callable[[], None]:
        epoch = self._epoch

        def sync() -> None:
            if epoch != self._epoch:
                return
            request = m.SyncRequest(
                group_id=self.group_id,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                assignments=assignments,
            )
            timeout = self.rebalance_timeout + 5_000
            self._call("sync", request, lambda answer: self._synced(answer) if epoch == self._epoch else None, timeout)

        return sync

    def _synced(self, answer: Any) -> None:
        error = error_of(answer)
        if error is not None:
            self._failed(error)
            return
        self.world.say(f"{self} is in generation {self.generation}")
        self.state = "stable"
        self._own(frozenset(number for _, number in owners({self.member_id: answer.assignment})))
        self._fetch_positions()

    def _failed(self, error: Any) -> None:
        """React to an error as a member that has joined."""
        if isinstance(error, errors.UnknownMemberId):
            self.member_id = ""
        if isinstance(error, errors.FencedInstanceId):
            self._die(error)
        else:
            self._give_up()
            self._later(self._join)

    # ── while it is stable ────────────────────────────────────────────────────────────────────────────────────────

    def _heartbeat(self) -> None:
        if self.state not in ("stable", "syncing"):
            return
        request = m.HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        sent = (self.generation, self.member_id)

        def answered(answer: Any) -> None:
            error = error_of(answer)
            stale = sent != (self.generation, self.member_id) or self.state != "stable"
            if error is None or stale or isinstance(error, errors.CoordinatorNotAvailable):
                return
            if isinstance(error, errors.RebalanceInProgress):
                self._rejoin("told so by the heartbeat")
            else:
                self._failed(error)

        self._call("heartbeat", request, answered)

    def _look_at_topic(self) -> None:
        if self.is_stable and self.leads and self.partitions_seen != self.world.partitions:
            self._rejoin("the topic has more partitions")


def _assign(member_ids: list[str], partitions: int) -> tuple[m.MemberAssignment, ...]:
    shares: dict[str, list[int]] = {member_id: [] for member_id in sorted(member_ids)}
    for partition, member_id in zip(range(partitions), sorted(member_ids) * partitions, strict=False):
        shares[member_id].append(partition)
    return tuple(
        m.MemberAssignment(
            member_id,
            b"\0\0"
            + encode_data(
                "consumer_protocol_assignment", 0, {"assigned_partitions": [{"topic": TOPIC, "partitions": share}]}
            ),
        )
        for member_id, share in shares.items()
    )
