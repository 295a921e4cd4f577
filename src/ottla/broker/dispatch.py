"""From a frame to a handler and back: header, version, decoding, the handler's response, encoding."""

from __future__ import annotations

import time
from asyncio import Future, wait
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from ottla import errors
from ottla.broker import unserved
from ottla.broker.authorization import refusal_of_request
from ottla.broker.handlers import HANDLERS, Handler
from ottla.broker.node import Call, Node
from ottla.broker.quotas import put_throttle_time, throttle_time
from ottla.net.server.connection import Answer, CloseConnection, Connection, Later
from ottla.protocol import codec
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Buffer, Message, Struct
from ottla.runtime.eager import Finished, start

#: Creates a named tuple in half the time of calling its class.
_new: Any = tuple.__new__


async def _pause_as_told(call: Call, forwarded: Awaitable[Answer]) -> Answer:
    """Let a client pause for as long as the controller says."""
    answer = await forwarded
    if answer is not None and (pause := throttle_time(call, answer)) > 0:
        call.connection.mute(pause / 1000)
    return answer


class Dispatcher:
    """Hands each frame to the handler of its API."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def handle(self, connection: Connection, frame: memoryview) -> Answer | Later | Awaitable[Answer]:
        """Handle one request frame; see `net.server.listener.Server`."""
        started = time.perf_counter()
        try:
            api_key, version, correlation_id, client_id, body = codec.decode_request_header(frame)
        except codec.DecodeError as error:
            raise CloseConnection(str(error)) from error
        handler = HANDLERS.get(api_key)
        cluster = self._node.cluster
        if handler is None or (handler.only_in_cluster and cluster is None):
            call = Call(connection, api_key, version, correlation_id, client_id)
            return unserved.refuse(call, f"the API {unserved.title(api_key)} is not served")
        quotas = self._node.request_quotas
        # A quick answer asks for no permission, and counts for no quota.
        is_plain = quotas is None and self._node.authorizer is None
        if (quick := handler.quick) is not None and version <= handler.last and is_plain:
            quickly = quick(self._node, version, correlation_id, frame, body)
            if quickly is not None:
                self._node.metrics.request(handler.name, time.perf_counter() - started)
                return quickly
        call = _new(Call, (connection, api_key, version, correlation_id, client_id))
        if not handler.first <= version <= handler.last:
            return self._unsupported(call, handler)
        try:
            request = codec.decode_request_body(api_key, version, frame, body)
        except codec.DecodeError as error:
            raise CloseConnection(f"{handler.name} v{version}: {error}") from error
        if self._is_for_controller(handler, request):
            assert cluster is not None
            forwarded: Awaitable[Answer] = cluster.requests.forward(call, bytes(frame))
            return forwarded if self._node.quotas is None else _pause_as_told(call, forwarded)
        if self._node.authorizer is not None and handler.needs:
            refusal = refusal_of_request(self._node, call, handler.needs, request)
            if refusal is not None:
                return self._encode(call, handler, started, _refused(call, handler, request, refusal))
        answer = handler.handle(self._node, call, request)
        if isinstance(answer, dict):
            return self._encode(call, handler, started, answer)
        if isinstance(answer, Buffer):
            self._node.metrics.request(handler.name, time.perf_counter() - started)
            if quotas is not None:
                put_throttle_time(call, answer, quotas.took(call, time.perf_counter() - started))
            return answer
        if answer is None:
            return None
        if isinstance(answer, Later):
            spent = None if quotas is None else time.perf_counter() - started
            return Later(answer.future, partial(self._finish, call, handler, started, spent, answer.finish))
        if isinstance(answer, Coroutine):
            begun = start(answer)
            if isinstance(begun, Finished):
                return self._encode(call, handler, started, begun.result)
            answer = begun
        spent = None if quotas is None else time.perf_counter() - started
        return self._later(call, handler, started, spent, answer)

    def _is_for_controller(self, handler: Handler, request: Struct) -> bool:
        cluster = self._node.cluster
        if not handler.to_controller or cluster is None or cluster.is_controller:
            return False
        return handler.stays is None or not handler.stays(request)

    async def forwarded(self, connection: Connection, frame: memoryview) -> bytes:
        """Answer a request that another broker forwarded; return the response without its size."""
        answer = self.handle(connection, frame)
        if isinstance(answer, Later):
            await wait([answer.future])
            answer = answer.finish(answer.future)
        elif isinstance(answer, Awaitable):
            answer = await answer
        return b"" if answer is None else bytes(answer[4:])

    async def _later(
        self, call: Call, handler: Handler, started: float, spent: float | None, answer: Awaitable[Any]
    ) -> Answer:
        return self._encode(call, handler, started, await answer, spent)

    def _finish(
        self,
        call: Call,
        handler: Handler,
        started: float,
        spent: float | None,
        finish: Callable[[Future[Any]], Message | None],
        future: Future[Any],
    ) -> Answer:
        return self._encode(call, handler, started, finish(future), spent)

    def _encode(
        self, call: Call, handler: Handler, started: float, message: Message | None, spent: float | None = None
    ) -> Answer:
        """Encode a response. ``spent`` is the time without waiting that a request took which had to wait."""
        if message is None:
            return None
        ended = time.perf_counter()
        self._node.metrics.request(handler.name, ended - started)
        if (quotas := self._node.request_quotas) is not None:
            pause = quotas.took(call, ended - started if spent is None else spent)
            message["throttle_time"] = max(pause, message.get("throttle_time", 0))
        return codec.encode_response(call.api_key, call.api_version, call.correlation_id, message)

    def _unsupported(self, call: Call, handler: Handler) -> Answer:
        if call.api_key != ApiKey.API_VERSIONS:
            served = f"v{handler.first} to v{handler.last}"
            name = unserved.title(call.api_key)
            return unserved.refuse(call, f"{name} v{call.api_version} is not served, only {served}")
        # The one answer that a client of an unknown version can read: version 0, with the versions we have.
        message = handler.handle(self._node, call, None)
        return codec.encode_response(call.api_key, 0, call.correlation_id, message)


def _refused(call: Call, handler: Handler, request: Struct, error: errors.KafkaError) -> Message | None:
    """Make the response to a request that the client may not send."""
    if handler.refuse is not None:
        return handler.refuse(request, error)
    return codec.error_response(call.api_key, call.api_version, error.code, str(error))
