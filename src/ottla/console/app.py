"""Puts the console together: pages, static files, errors, and the guard in front."""

from __future__ import annotations

import logging

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from ottla.console import live, login
from ottla.console.pages import pages
from ottla.console.render import message_page
from ottla.console.security import Guard
from ottla.console.state import Console
from ottla.errors import (
    AuthorizationError,
    GroupIdNotFound,
    InvalidGroupId,
    InvalidTopicException,
    KafkaError,
    OttlaError,
    UnknownTopicOrPartition,
)

logger = logging.getLogger(__name__)


def create_app(console: Console) -> ASGIApp:
    """The ASGI application of a console."""
    found = pages()
    app = Starlette(
        routes=[
            *login.routes,
            *live.routes,
            Route("/healthz", _healthy),
            Mount("/static", StaticFiles(packages=[("ottla.console", "static")])),
            *(route for page in found for route in page.routes),
        ],
        exception_handlers={
            HTTPException: _no_page,
            OttlaError: _cluster_failed,
            UnicodeEncodeError: _no_text,
            Exception: _failed,
        },
    )
    app.state.console = console
    app.state.nav = [(page.path, page.title) for page in found]
    return Guard(app, console)


async def _healthy(request: Request) -> Response:
    return PlainTextResponse("ok\n")


async def _no_page(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = "There is no such page." if error.status_code == 404 and error.detail == "Not Found" else error.detail
    return message_page(request, "Not found" if error.status_code == 404 else "Not possible", text, error.status_code)


async def _cluster_failed(request: Request, error: Exception) -> Response:
    # An error of the cluster may be wrapped in one that says what was asked for.
    cause = error if isinstance(error, KafkaError) else error.__cause__
    if isinstance(cause, UnknownTopicOrPartition | GroupIdNotFound | InvalidTopicException | InvalidGroupId):
        return message_page(request, "Not found", str(error), 404)
    if isinstance(cause, AuthorizationError):
        return message_page(request, "Not allowed", str(error), 403)
    return message_page(request, "The cluster does not answer", str(error), 503)


async def _no_text(request: Request, error: Exception) -> Response:
    """A name with bytes that are no Unicode: a file can have it, but nothing in a cluster."""
    text = "Names in Kafka are Unicode text, and one in this address or form is not. Check how it was written."
    return message_page(request, "Not possible", text, 400)


async def _failed(request: Request, error: Exception) -> Response:
    logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    text = f"{type(error).__name__}: {error}. This is a bug in ottla; the log of the console has the details."
    return message_page(request, "Something went wrong", text, 500)
