"""Live updates with server-sent events.

A page marks what may change with `data-live="name"`. console.js opens `/live`, and when the collector has something
new it loads the page again and replaces those parts. So a page needs no code for it, and nothing is sent while nobody
looks.

For other streams, such as the tail of a topic, `events` makes a response from an iterator of texts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ottla.console.collector import Collector
from ottla.console.security import is_still_known, owner_of
from ottla.console.sessions import Streams, TooMany
from ottla.console.state import access_of, console_of
from ottla.console.views.paging import whole

ALIVE = 15.0
"""Seconds after which something is sent, so that a browser that disappeared is noticed (server.py)."""
LEAST = 1.0
"""Seconds between two updates."""


def events(request: Request, stream: AsyncIterator[str], streams: Streams) -> Response:
    """A response of server-sent events, if `streams` has a place for it. Make the texts with `event`."""
    return _Events(stream, streams, owner_of(request))


class _Events(StreamingResponse):
    """Has its place from before the first byte until the browser is gone, also if nothing was ever sent."""

    def __init__(self, stream: AsyncIterator[str], streams: Streams, owner: str) -> None:
        super().__init__(stream, media_type="text/event-stream", headers={"x-accel-buffering": "no"})
        self._streams = streams
        self._owner = owner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._streams.place(self._owner):
                await super().__call__(scope, receive, send)
        except TooMany as error:
            refusal = PlainTextResponse(f"{error}\n", 503, {"retry-after": str(int(ALIVE))})
            await refusal(scope, receive, send)


def event(name: str, data: str = "") -> str:
    r"""One event.

    >>> event("changed", "1")
    'event: changed\ndata: 1\n\n'
    """
    lines = "".join(f"data: {line}\n" for line in data.split("\n"))
    return f"event: {name}\n{lines}\n"


async def live(request: Request) -> Response:
    since = whole(request.query_params.get("since", ""))
    collector = access_of(request).collector
    stream = _changes(request, collector, collector.version if since is None else since)
    return events(request, stream, console_of(request).streams)


async def _changes(request: Request, collector: Collector, version: int) -> AsyncIterator[str]:
    with collector.viewer():
        yield event("hello", str(version))
        while not collector.closed and is_still_known(request):
            try:
                async with asyncio.timeout(ALIVE):
                    await collector.changed(version)
            except TimeoutError:
                yield ": alive\n\n"
                continue
            version = collector.version
            yield event("changed", str(version))
            # The steps of a round on a small cluster come together.
            await asyncio.sleep(LEAST)


routes = [Route("/live", live)]
