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

import json
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ottla.config.listeners import parse_address
from ottla.errors import OttlaError
from ottla.net.server.http import HttpLimits, HttpRequest, HttpResponse, HttpServer

if TYPE_CHECKING:
    from ottla.broker.faults.control import Control

logger = logging.getLogger("ottla.faults")

_MOST_DIGITS = 18
_LIMITS = HttpLimits(body=1 << 20, idle_seconds=30.0, request_seconds=30.0, keep=False)


class ControlServer:
    """Takes orders for one broker. It runs on the broker's event loop."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._http = HttpServer(self._respond, refused=_refused, limits=_LIMITS)

    @property
    def address(self) -> tuple[str, int]:
        return self._http.address

    async def start(self, host: str, port: int) -> None:
        await self._http.start(host, port)

    async def stop(self) -> None:
        await self._http.stop()

    async def _respond(self, request: HttpRequest) -> HttpResponse:
        path = request.target.partition("?")[0]
        try:
            values = json.loads(request.body or b"{}")
            if not isinstance(values, dict):
                raise ValueError("a JSON object is required")
        except (ValueError, RecursionError) as error:
            return _answer(HTTPStatus.BAD_REQUEST, {"error": f"the body is not valid: {error}"})
        parts = [unquote(part) for part in path.strip("/").split("/")]
        found = _operation(request.method, parts)
        if found is None:
            return _answer(HTTPStatus.NOT_FOUND, {"error": f"there is nothing at {request.method} {path}"})
        operation, more = found
        try:
            return _answer(HTTPStatus.OK, {"result": await self._control.run(operation, {**values, **more})})
        except OttlaError as error:
            return _answer(HTTPStatus.BAD_REQUEST, {"error": str(error)})
        except Exception as error:
            logger.exception("the order %s %s failed", request.method, path)
            return _answer(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": f"{type(error).__name__}: {error}"})


def _operation(method: str, parts: list[str]) -> tuple[str, dict[str, Any]] | None:
    match method, parts:
        case "GET", ["faults"]:
            return "list", {}
        case "POST", ["faults"]:
            return "add", {}
        case "DELETE", ["faults"]:
            return "clear", {}
        case "DELETE", ["faults", rule] if rule.isdecimal() and len(rule) <= _MOST_DIGITS:
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


def _answer(status: int, values: dict[str, Any]) -> HttpResponse:
    return HttpResponse(status, json.dumps(values).encode(), "application/json")


def _refused(status: int, text: str) -> HttpResponse:
    return _answer(status, {"error": text})


async def serve_control(control: Control, address: str) -> ControlServer:
    """Start a server at an address."""
    server = ControlServer(control)
    try:
        await server.start(*parse_address(address))
    except OSError as error:
        raise OttlaError(f"cannot listen on {address} for faults: {error.strerror}; choose another address") from error
    return server
