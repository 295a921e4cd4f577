"""A registry: requests in, answers out, with its state in a topic."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qsl, unquote

from ottla import __version__
from ottla.errors import OttlaError
from ottla.net.server.http import HttpRequest, HttpResponse
from ottla.registry import errors
from ottla.registry.api import Route, Text, route
from ottla.registry.errors import RegistryError
from ottla.registry.operations import Operations, Outcome
from ottla.registry.records import encoded
from ottla.registry.requests import Request
from ottla.registry.state import State
from ottla.registry_server.topic import Fenced, SchemaTopic

logger = logging.getLogger("ottla.registry")
_WRITE_SECONDS = 30.0
_READ_SECONDS = 5.0
_JSON = "application/vnd.schemaregistry.v1+json"


class RegistryService:
    """Answers the requests of Confluent's API. With `users`, clients log in with a name and a password."""

    def __init__(self, config: Mapping[str, object], *, topic: str, users: Mapping[str, str] | None = None) -> None:
        self._state = State()
        self._operations = Operations(self._state)
        self.topic = SchemaTopic(config, self._state.replay, topic)
        self._users = dict(users or {})
        self._writing = asyncio.Lock()

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """Answer a request; nothing that a client sends raises."""
        try:
            self._log_in(request.headers)
            asked = _request(request)
            fixed = self._about(asked)
            found = fixed if fixed is not None else await self._run(route(asked), asked)
            return _response(200, found)
        except RegistryError as error:
            return refused(error.status, error.message, error.code)
        except OttlaError as error:
            logger.warning("%s %s: %s", request.method, request.target[:200], error)
            return refused(500, str(error), 50001)
        except Exception:
            logger.exception("%s %s", request.method, request.target[:200])
            return refused(500, "an unexpected error, which the log of the registry shows", 50001)

    def _about(self, request: Request) -> Any:
        """What a registry says about itself."""
        if request.method == "GET" and request.path == ("v1", "metadata", "id"):
            clusters = {"kafka-cluster": self.topic.cluster_id, "schema-registry-cluster": "schema-registry"}
            return {"scope": {"path": [], "clusters": clusters}}
        if request.method == "GET" and request.path == ("v1", "metadata", "version"):
            return {"version": f"ottla {__version__}", "commitId": ""}
        return None

    def _log_in(self, headers: Mapping[str, str]) -> None:
        if not self._users:
            return
        kind, _, given = headers.get("authorization", "").partition(" ")
        try:
            name, _, password = base64.b64decode(given, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            name = password = ""
        # An unknown user takes as long as a wrong password.
        known = self._users.get(name, "")
        is_right = hmac.compare_digest(known.encode(), password.encode()) and name in self._users
        if kind.lower() != "basic" or not is_right:
            raise RegistryError(401, "Unauthorized")

    async def _run(self, found: Route, request: Request) -> Any:
        if found.changes:
            return await self._change(found, request)
        try:
            return found.run(self._operations, request).answer
        except RegistryError as error:
            if error.status != 404:
                raise
        # Another registry may have written it a moment ago.
        try:
            async with asyncio.timeout(_READ_SECONDS):
                await self.topic.read_to_end()
        except TimeoutError:
            raise errors.timed_out(f"cannot read the topic {self.topic.name}") from None
        return found.run(self._operations, request).answer

    async def _change(self, found: Route, request: Request) -> Any:
        # Most producers register what is there: that needs no write, and must not take over from another registry.
        with suppress(RegistryError):
            outcome = found.run(self._operations, request)
            if not outcome.records:
                return outcome.answer
        try:
            async with asyncio.timeout(_WRITE_SECONDS), self._writing:
                return await self._decide_and_write(found, request)
        except TimeoutError:
            raise errors.timed_out(f"writing to the topic {self.topic.name} took too long") from None

    async def _decide_and_write(self, found: Route, request: Request) -> Any:
        while True:
            await self.topic.take_over()
            outcome: Outcome = found.run(self._operations, request)
            if not outcome.records:
                return outcome.answer
            try:
                await self.topic.write([(encoded(key) or b"", encoded(value)) for key, value in outcome.records])
                return outcome.answer
            except Fenced as error:
                logger.info("another registry or broker took over, deciding again: %s", error)


def _request(request: HttpRequest) -> Request:
    path, _, query = request.target.partition("?")
    parts = tuple(unquote(part, errors="surrogateescape") for part in path.strip("/").split("/")) if path != "/" else ()
    try:
        pairs = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=100))
    except ValueError:
        raise RegistryError(400, "the query has too many fields") from None
    return Request(request.method, parts, pairs, request.body)


def _response(status: int, answer: Any) -> HttpResponse:
    text = answer if isinstance(answer, Text) else json.dumps(answer, separators=(",", ":"), ensure_ascii=False)
    return HttpResponse(status, text.encode(errors="replace"), _JSON)


def refused(status: int, message: str, code: int | None = None) -> HttpResponse:
    """The answer to a request that is refused."""
    body = json.dumps({"error_code": status if code is None else code, "message": message}).encode()
    headers = (("WWW-Authenticate", 'Basic realm="ottla"'),) if status == 401 else ()
    return HttpResponse(status, body, _JSON, headers)
