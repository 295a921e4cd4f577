"""Stands in front of the dispatcher while there are rules, and lets faults befall the requests that match."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from ottla.broker.dispatch import Dispatcher
from ottla.broker.faults import special
from ottla.broker.faults.asked import SESSION_ERRORS, Asked, fetches_by_id
from ottla.broker.faults.responses import error_response, is_of_offsets
from ottla.broker.faults.rules import CUT, DELAY, DROP, FAIL, THROTTLE, Rule, Rules
from ottla.broker.fetch_sessions import is_incremental
from ottla.broker.node import Node
from ottla.errors import KafkaError, UnsupportedVersion
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
        rule = self._rules.take(Asked(self._node, head, frame))
        return super().handle(connection, frame) if rule is None else self._befall(rule, head, connection, frame)

    def _befall(
        self, rule: Rule, head: RequestHeader, connection: Connection, frame: memoryview
    ) -> Answer | Later | Awaitable[Answer]:
        if rule.kind == CUT and not rule.after:
            connection.close(f"the fault {rule.id} cuts it", expected=True)
            return None
        if rule.kind == FAIL and not rule.after and not self._needs_answer(rule, head, frame):
            return self._failed(rule, head, connection, frame, None)
        return self._disturbed(rule, head, connection, memoryview(bytes(frame)))

    async def _disturbed(self, rule: Rule, head: RequestHeader, connection: Connection, frame: memoryview) -> Answer:
        """Faults that take time, or whose request is carried out first."""
        if rule.kind == DELAY and not rule.after:
            await asyncio.sleep(rule.milliseconds / 1000)
        if rule.kind == DROP and not rule.after:
            await _never()
        answer = await _complete(super().handle(connection, frame))
        if rule.kind == FAIL:
            return self._failed(rule, head, connection, frame, answer)
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

    def _failed(
        self, rule: Rule, head: RequestHeader, connection: Connection, frame: memoryview, answer: Answer
    ) -> Answer:
        """The response with the error. ``answer`` is the true one if the request was carried out."""
        assert rule.error is not None
        request, version = self._decoded(head, frame), head.api_version
        if head.api_key == ApiKey.PRODUCE and request.acks == 0:
            # As in Kafka: without a response, this is how a client hears of an error.
            raise CloseConnection(f"the fault {rule.id} fails a request without acknowledgements")
        if head.api_key == ApiKey.PRODUCE and rule.error.retriable and not rule.after:
            now = self._node.clock.now()
            for topic in request.topic_data:
                for data in topic.partition_data:
                    self._node.deferred.add(topic, data, now=now)
        if head.api_key == ApiKey.FETCH:
            return self._failed_fetch(rule.error, head, request, answer)
        if head.api_key == ApiKey.API_VERSIONS and rule.error is UnsupportedVersion:
            return codec.encode_response(head.api_key, 0, head.correlation_id, special.unsupported_version())
        if answer is not None and is_of_offsets(rule.error, head.api_key):
            message = special.failed_offsets(request, _message(_read(head, answer)), rule.error)
        else:
            message = error_response(head.api_key, version, request, rule.error)
        if head.api_key == ApiKey.METADATA:
            message = special.with_brokers(self._node, connection, version, request, rule.error, message)
        return codec.encode_response(head.api_key, version, head.correlation_id, message)

    def _failed_fetch(self, error: type[KafkaError], head: RequestHeader, request: Struct, answer: Answer) -> Answer:
        sessions = self._node.sessions
        if error in SESSION_ERRORS:
            message = special.failed_session(error)
        else:
            if answer is None:
                by_id, now = fetches_by_id(head.api_version), self._node.clock.now()
                session_id = sessions.plan(request, by_id=by_id, now=now).session_id
            else:
                session_id = _read(head, answer).session_id
                if is_incremental(request) and sessions.get(session_id) is None:
                    return answer  # The session has ended while the request was carried out.
            message = special.failed_fetch(self._node, head.api_version, request, error, session_id)
        return codec.encode_response(head.api_key, head.api_version, head.correlation_id, message)

    def _needs_answer(self, rule: Rule, head: RequestHeader, frame: memoryview) -> bool:
        """Whether only the true answer tells what the error is about."""
        return (
            rule.error is not None
            and is_of_offsets(rule.error, head.api_key)
            and special.wants_all_offsets(self._decoded(head, frame))
        )

    def _decoded(self, head: RequestHeader, frame: memoryview) -> Struct:
        try:
            return codec.decode_request_body(head.api_key, head.api_version, frame, head.body)
        except codec.DecodeError as error:
            raise CloseConnection(str(error)) from error


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
    message = {**_message(_read(head, answer)), "throttle_time": milliseconds}
    return codec.encode_response(head.api_key, head.api_version, head.correlation_id, message)


def _read(head: RequestHeader, answer: codec.Buffer) -> Struct:
    return codec.decode_response(head.api_key, head.api_version, memoryview(_whole(answer))[4:])


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
