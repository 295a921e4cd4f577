"""The designs *classic* and *consumer*: the real coordinator and driver, and the real member machines.

Requests and responses are encoded and decoded as on the wire, and the broker's handlers translate them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from ottla import errors
from ottla.assignors import BY_NAME
from ottla.broker.handlers import consumer_group_heartbeat, heartbeat, join_group, sync_group
from ottla.consuming.classic import ClassicMember
from ottla.consuming.consumer import ConsumerMember
from ottla.consuming.membership import DutyKind, MemberSettings, Request, Topics
from ottla.coordinator import messages as m
from ottla.coordinator import records as r
from ottla.coordinator.config import GroupConfig
from ottla.coordinator.coordinator import Coordinator
from ottla.coordinator.group import TopicInfo
from ottla.coordinator.serde import decode, encode
from ottla.driver import Driver
from ottla.lab.member import Process
from ottla.lab.virtual import Log, VirtualClock, VirtualJournal, VirtualReply
from ottla.lab.world import World
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import (
    Message,
    Struct,
    decode_request_body,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from ottla.types import Millis

TOPIC, TOPIC_ID, GROUP = "orders", UUID(int=1), "lab"
METADATA_AGE: Millis = 5_000
_VERSIONS = {
    ApiKey.JOIN_GROUP: 9,
    ApiKey.SYNC_GROUP: 5,
    ApiKey.HEARTBEAT: 4,
    ApiKey.LEAVE_GROUP: 5,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 1,
}
_HANDLERS: dict[ApiKey, Any] = {
    ApiKey.JOIN_GROUP: join_group.handle,
    ApiKey.SYNC_GROUP: sync_group.handle,
    ApiKey.HEARTBEAT: heartbeat.handle,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: consumer_group_heartbeat.handle,
}


class Broker:
    """The coordinator of the group, which can fail and be loaded again from its log."""

    def __init__(self, world: World, session_timeout: Millis) -> None:
        self.world = world
        self.log: Log = []
        self._ids = count(1)
        self._config = GroupConfig(
            group_initial_rebalance_delay_ms=3_000,
            group_min_session_timeout_ms=1_000,
            group_consumer_session_timeout_ms=session_timeout,
            group_consumer_min_session_timeout_ms=1_000,
            group_consumer_heartbeat_interval_ms=3_000,
        )
        self.is_up = False
        world.on_partitions.append(self._grown)
        self.start()

    def start(self) -> None:
        self.world.next_life()
        self.coordinator = Coordinator(self._config, new_id=self._new_id, topics=self._topics)
        self.driver: Driver[r.CoordinatorRecord] = Driver(
            self.coordinator,
            VirtualJournal(self.log, encode),
            VirtualClock(self.world),
            call_later=lambda delay, callback: self.world.call_later(delay, callback, late=0),
            new_reply=VirtualReply,
            before_send=lambda write: None,
        )
        for key, value in self.log:
            self.coordinator.replay(decode(key, value))
        self.driver.begin(self.coordinator.loaded)
        self.is_up = True

    def fail(self, length: Millis) -> None:
        """Die, and come back later. Requests that wait get no response."""
        self.world.next_life()
        self.is_up = False
        self.world.after(length, self.start)

    def _new_id(self) -> str:
        return str(next(self._ids))

    def _topics(self) -> dict[str, TopicInfo]:
        return {TOPIC: TopicInfo(TOPIC_ID, self.world.partitions)}

    def _grown(self) -> None:
        if self.is_up:
            self.driver.begin(self.coordinator.topics_changed, (TOPIC,), created=False)

    def ask(self, frame: bytes, reply: Callable[[bytes | None], None]) -> None:
        """Take a request as bytes; the reply gets the response as bytes, or None if the connection breaks."""
        if not self.is_up:
            reply(None)
            return
        header = decode_request_header(frame)
        api, version = ApiKey(header.api_key), header.api_version
        request = decode_request_body(api, version, frame, header.body)
        operation, wanted, message = self._translated(api, version, header.client_id or "", request)

        def answer(response: Any) -> None:
            reply(bytes(encode_response(api, version, header.correlation_id, message(response)))[4:])

        life = self.world.life
        try:
            begun = self.driver.begin(getattr(self.coordinator, operation), wanted)
        except errors.KafkaError as error:
            begun = error
        if isinstance(begun, VirtualReply) and not begun.done():
            begun.callbacks.append(lambda result: answer(result) if life == self.world.life else reply(None))
        else:
            answer(begun.result if isinstance(begun, VirtualReply) else begun)

    def _translated(
        self, api: ApiKey, version: int, client_id: str, request: Struct
    ) -> tuple[str, Any, Callable[[Any], Message]]:
        """The operation of the coordinator, its request, and what makes the response a message."""
        if api is ApiKey.LEAVE_GROUP:
            members = tuple(
                m.LeavingMember(one.member_id, one.group_instance_id, one.reason or "") for one in request.members
            )
            return "leave", m.LeaveRequest(group_id=request.group_id, members=members), _left
        asked: list[Any] = []

        def ask(_group: str, operation: Any, wanted: Any, message: Any) -> Message:
            asked.extend([operation.__name__, wanted, message])
            return {}

        groups = SimpleNamespace(ask=ask, follow=lambda *_: None)
        node = SimpleNamespace(groups=groups, authorizer=None)
        connection = SimpleNamespace(client_host="127.0.0.1")
        call = SimpleNamespace(api_version=version, client_id=client_id, connection=connection, correlation_id=0)
        _HANDLERS[api](node, call, request)
        operation, wanted, message = asked
        return operation, wanted, message

    def accepts(self, member_id: str, generation: int, instance_id: str | None) -> bool:
        """Whether a commit of this member would be accepted."""
        if not self.is_up or not member_id:
            return False
        offsets = (m.OffsetToCommit(TOPIC, 0, 0),)
        request = m.CommitRequest(GROUP, member_id, generation, instance_id, offsets=offsets)
        try:
            outcome = self.coordinator.commit(request, now=self.world.now)
        except errors.KafkaError:
            return False
        response = outcome.response
        return isinstance(response, m.CommitResponse) and not any(response.error_codes)


def _left(response: Any) -> Message:
    if isinstance(response, errors.KafkaError):
        return {"error_code": response.code, "members": []}
    return {"error_code": response.error_code, "members": [one._asdict() for one in response.members]}


class BrokerMember(Process):
    """A consumer with the real member machine."""

    def __init__(
        self,
        world: World,
        broker: Broker,
        name: str,
        *,
        protocol: str,
        assignor: str,
        session_timeout: Millis,
        max_poll_interval: Millis,
        instance_id: str | None = None,
    ) -> None:
        super().__init__(world, name, instance_id or name)
        self._broker = broker
        settings = MemberSettings(
            GROUP, instance_id, session_timeout_ms=session_timeout, max_poll_interval_ms=max_poll_interval
        )
        self.machine: ClassicMember | ConsumerMember
        if protocol == "consumer":
            self.machine = ConsumerMember(settings, f"{name}-{world.random.getrandbits(64):x}")
        else:
            self.machine = ClassicMember(settings, [BY_NAME[assignor]()])
        self._correlation = count(1)
        self._wake_at: Millis | None = None
        self.machine.subscribe([TOPIC])
        self._learn()
        self._refresh()
        self.step()

    def may_commit(self, partition: int) -> bool:
        who = self.machine.identity
        return self._broker.accepts(who.member_id, who.generation, who.group_instance_id)

    def leave(self) -> None:
        self.drop(commits=True)
        request = self.machine.leave("the consumer was closed")
        if request is not None and not self.is_cut:
            self._send(request, forget=True)
        super().leave()

    def step(self) -> None:
        """Do what is due: duties of the application, requests."""
        now = self.world.now
        if not self.is_alive:
            return
        if self.paused_until > now:
            self.when_awake(self.step)
            return
        if self.busy_until <= now:
            self.machine.polled(now=now)
            while (duty := self.machine.due()) is not None:
                numbers = {key.partition for key in duty.partitions}
                if duty.kind is DutyKind.ASSIGN:
                    self.machine.done(duty)
                    self.take(numbers)
                else:
                    self.drop(numbers, commits=duty.kind is DutyKind.REVOKE)
                    self.machine.done(duty)
            self.machine.rejection(now=now)
        elif self.machine.due() is not None:
            self.when_awake(self.step, polls=True)
        step = self.machine.poll(now=now)
        for request in step.requests:
            self._send(request)
        if step.metadata is not None:
            self.world.send(100, self._learned)
        if self.busy_until <= now and self.machine.due() is not None:
            self.world.after(0, self.step)
        elif step.wake_at is not None:
            self._sleep(max(step.wake_at, now + 1))

    def _sleep(self, until: Millis) -> None:
        if self._wake_at is not None and self.world.now < self._wake_at <= until:
            return
        self._wake_at = until

        def wake() -> None:
            if self._wake_at == until:
                self._wake_at = None
                self.step()

        self.world.after(until - self.world.now, wake)

    # ── messages ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _send(self, request: Request, *, forget: bool = False) -> None:
        version = _VERSIONS[request.api]
        frame = bytes(encode_request(request.api, version, next(self._correlation), self.name, request.message))[4:]

        def reply(data: bytes | None) -> None:
            size = 0 if data is None else len(data)
            self.world.answer(size, lambda: self.when_awake(lambda: answered(data)))

        def answered(data: bytes | None) -> None:
            if forget:
                return
            now = self.world.now
            if data is None or self.is_cut:
                self.machine.failed(request, errors.NetworkException("the connection broke"), now=now)
            else:
                self.machine.answered(request, decode_response(request.api, version, data), now=now)
            self.step()

        if self.is_cut and not forget:
            self.world.after(1_000, lambda: self.when_awake(lambda: answered(None)))
        else:
            self.world.send(len(frame), lambda: self._broker.ask(frame, reply))

    def _refresh(self) -> None:
        """Metadata gets old, and is asked for again."""
        if self.is_alive:
            if self.reads and not self.is_cut:
                self._learned()
            self.world.after(METADATA_AGE, self._refresh)

    def _learn(self) -> None:
        self.machine.learned(Topics({TOPIC: self.world.partitions}, {TOPIC: TOPIC_ID}))

    def _learned(self) -> None:
        if self.is_alive:
            self._learn()
            self.step()
