"""Stands in front of the dispatcher while there are rules, and lets faults befall the requests that match."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection
from uuid import UUID

from ottla.broker.dispatch import Dispatcher
from ottla.broker.faults.responses import error_response, topics_of
from ottla.broker.faults.rules import CUT, DELAY, DROP, FAIL, THROTTLE, Rule, Rules
from ottla.broker.node import Node
from ottla.net.server.connection import Answer, CloseConnection, Connection, Later
from ottla.protocol import codec
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, RequestHeader, Struct


class Injector(Dispatcher):
    """A dispatcher whose requests meet faults."""

    def __init__(self, node: Node, rules: Rules) -> None:
        super().__init__(node)
        self._rules = rules

    def handle(self, connection: Connection, frame: memoryview) -> Answer | Later | Awaitable[Answer]:
        try:
            head = codec.decode_request_header(frame)
        except codec.DecodeError as error:
            raise CloseConnection(str(error)) from error
        rule = self._rules.take(head.api_key, head.client_id, lambda: self._topics(head, frame))
        return super().handle(connection, frame) if rule is None else self._befall(rule, head, connection, frame)

    def _befall(
        self, rule: Rule, head: RequestHeader, connection: Connection, frame: memoryview
    ) -> Answer | Later | Awaitable[Answer]:
        if rule.kind == CUT and not rule.after:
            connection.close(f"the fault {rule.id} cuts it", expected=True)
            return None
        if rule.kind == FAIL and not rule.after:
            return self._failed(rule, head, connection, frame)
        return self._disturbed(rule, head, connection, memoryview(bytes(frame)))

    async def _disturbed(self, rule: Rule, head: RequestHeader, connection: Connection, frame: memoryview) -> Answer:
        """Faults that take time, or whose request is carried out first."""
        if rule.kind == DELAY and not rule.after:
            await asyncio.sleep(rule.milliseconds / 1000)
        if rule.kind == DROP and not rule.after:
            await _never()
        answer = await _complete(super().handle(connection, frame))
        if rule.kind == FAIL:
            return self._failed(rule, head, connection, frame)
        if rule.kind == CUT:
            connection.close(f"the fault {rule.id} cuts it instead of a response", expected=True)
            return None
        if rule.kind == DROP:
            await _never()
        if rule.kind == DELAY and rule.after:
            await asyncio.sleep(rule.milliseconds / 1000)
        if rule.kind == THROTTLE and answer is not None:
            connection.mute(rule.milliseconds / 1000)
            return _with_throttle(head, answer, rule.milliseconds)
        return answer

    def _failed(self, rule: Rule, head: RequestHeader, connection: Connection, frame: memoryview) -> Answer:
        assert rule.error is not None
        request = self._decoded(head, frame)
        if head.api_key == ApiKey.PRODUCE and request.acks == 0:
            # As in Kafka: without a response, this is how a client hears of an error.
            raise CloseConnection(f"the fault {rule.id} fails a request without acknowledgements")
        if head.api_key == ApiKey.PRODUCE and rule.error.retriable and not rule.after:
            now = self._node.clock.now()
            for topic in request.topic_data:
                for data in topic.partition_data:
                    self._node.deferred.add(topic, data, now=now)
        message = error_response(head.api_key, head.api_version, request, rule.error)
        if head.api_key == ApiKey.METADATA:
            # A client needs the brokers to ask again. All topics are wanted if none are named.
            known = self._node.metadata.topics.values() if not message["topics"] else ()
            every = [{"error_code": rule.error.code, "name": topic.name, "partitions": []} for topic in known]
            brokers = [
                {"node_id": each.broker_id, "host": each.host, "port": each.port, "rack": each.rack}
                for each in self._node.brokers(connection)
            ]
            topics = [{**each, "partitions": []} for each in message["topics"]] or every
            message = {
                **message,
                "brokers": brokers,
                "topics": topics,
                "cluster_id": self._node.metadata.cluster_id,
                "controller_id": self._node.controller_id,
            }
        return codec.encode_response(head.api_key, head.api_version, head.correlation_id, message)

    def _decoded(self, head: RequestHeader, frame: memoryview) -> Struct:
        try:
            return codec.decode_request_body(head.api_key, head.api_version, frame, head.body)
        except codec.DecodeError as error:
            raise CloseConnection(str(error)) from error

    def _topics(self, head: RequestHeader, frame: memoryview) -> Collection[str]:
        known = self._node.metadata.topics_by_id
        return {
            known[each].name if isinstance(each, UUID) and each in known else str(each)
            for each in topics_of(head.api_key, head.api_version, self._decoded(head, frame))
        }


async def _complete(answer: Answer | Later | Awaitable[Answer]) -> Answer:
    if isinstance(answer, Later):
        await asyncio.wait([answer.future])
        finished: Answer = answer.finish(answer.future)
        return finished
    if answer is None or isinstance(answer, codec.Buffer):
        return answer
    return await answer


async def _never() -> None:
    """Wait until the connection is closed."""
    await asyncio.get_running_loop().create_future()


def _with_throttle(head: RequestHeader, answer: codec.Buffer, milliseconds: int) -> codec.Buffer:
    """The same response, with the time for which the client should wait."""
    response = codec.decode_response(head.api_key, head.api_version, memoryview(_whole(answer))[4:])
    message = {**_message(response), "throttle_time": milliseconds}
    return codec.encode_response(head.api_key, head.api_version, head.correlation_id, message)


def _whole(answer: codec.Buffer) -> bytes:
    """The bytes of a response, with those that would be sent from files."""
    parts, position = [], 0
    for at, value in answer.splices:
        parts += [answer[position:at], value if isinstance(value, bytes | bytearray | memoryview) else value.read()]
        position = at
    return b"".join([*parts, answer[position:]])


def _message(decoded: Struct) -> Message:
    return {name: _plain(getattr(decoded, name)) for name in decoded.__slots__}


def _plain(value: object) -> object:
    if isinstance(value, Struct):
        return _message(value)
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
