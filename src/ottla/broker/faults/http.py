"""The testing kit over HTTP, for programs in other languages and for brokers in other processes.

    GET    /faults                        the present faults
    POST   /faults                        {"kind": "fail", "api": "Fetch", "error": "NOT_LEADER_OR_FOLLOWER"}
    DELETE /faults, /faults/ID            remove all, or one
    POST   /groups/GROUP/rebalance        {"reason": "..."}
    POST   /groups/GROUP/expire           {"member": "..."}; all members without one
    PUT    /disk/full, DELETE /disk/full
    POST   /clock                         {"milliseconds": 60000}; needs a manual clock
    GET    /topics/TOPIC, /groups/GROUP   the records of a topic; the members, offsets and lag of a group

    POST   /run/OPERATION                 any operation of `Control`, for other processes of ottla

Answers are JSON: ``{"result": ...}``, or ``{"error": "..."}`` with the status 400 or 404.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ottla.config.listeners import parse_address
from ottla.errors import OttlaError

if TYPE_CHECKING:
    from ottla.broker.faults.control import Control

_MAX_BODY = 1 << 20
_TIMEOUT = 30.0


class ControlServer:
    """Takes orders for one broker. It runs on the broker's event loop."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> tuple[str, int]:
        assert self._server is not None, "it has not been started"
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    async def start(self, host: str, port: int) -> None:
        self._server = await asyncio.start_server(self._connected, host or None, port)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
                async with asyncio.timeout(_TIMEOUT):
                    writer.write(await self._respond(reader))
                    await writer.drain()
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _respond(self, reader: asyncio.StreamReader) -> bytes:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, _, rest = head.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        lengths = [line.partition(":")[2] for line in head.lower().split("\r\n") if line.startswith("content-length:")]
        length = int(lengths[0]) if lengths and lengths[0].strip().isdecimal() else 0
        if length > _MAX_BODY:
            return _answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, {"error": "the body is too long"})
        try:
            values = json.loads(await reader.readexactly(length) or b"{}")
            if not isinstance(values, dict):
                raise ValueError("a JSON object is required")
        except ValueError as error:
            return _answer(HTTPStatus.BAD_REQUEST, {"error": f"the body is not valid: {error}"})
        parts = [unquote(part) for part in path.strip("/").split("/")]
        found = _operation(method, parts)
        if found is None:
            return _answer(HTTPStatus.NOT_FOUND, {"error": f"there is nothing at {method} {path}"})
        operation, more = found
        try:
            return _answer(HTTPStatus.OK, {"result": await self._control.run(operation, {**values, **more})})
        except OttlaError as error:
            return _answer(HTTPStatus.BAD_REQUEST, {"error": str(error)})


def _operation(method: str, parts: list[str]) -> tuple[str, dict[str, Any]] | None:
    match method, parts:
        case "GET", ["faults"]:
            return "list", {}
        case "POST", ["faults"]:
            return "add", {}
        case "DELETE", ["faults"]:
            return "clear", {}
        case "DELETE", ["faults", rule] if rule.isdecimal():
            return "remove", {"id": int(rule)}
        case "POST", ["groups", group, "rebalance"]:
            return "rebalance", {"group": group}
        case "POST", ["groups", group, "expire"]:
            return "expire_session", {"group": group}
        case "GET", ["groups", group]:
            return "group", {"group": group}
        case "GET", ["topics", topic]:
            return "records", {"topic": topic}
        case "PUT", ["disk", "full"]:
            return "fill_disk", {}
        case "DELETE", ["disk", "full"]:
            return "free_disk", {}
        case "POST", ["run", operation]:
            return operation, {}
        case "POST", ["clock"]:
            return "advance", {}
    return None


def _answer(status: HTTPStatus, values: dict[str, Any]) -> bytes:
    body = json.dumps(values).encode()
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


async def serve_control(control: Control, address: str) -> ControlServer:
    """Start a server at an address."""
    server = ControlServer(control)
    try:
        await server.start(*parse_address(address))
    except OSError as error:
        raise OttlaError(f"cannot listen on {address} for faults: {error.strerror}; choose another address") from error
    return server
