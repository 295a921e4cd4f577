"""The request handlers, one file per API. Every file in this folder is served.

A file defines ``API`` and ``handle(node, call, request)``. ``request`` is the decoded message. ``handle`` returns the
response message, None for no response, an awaitable of either, or a `Later` (``net.server.connection``), which needs no
task. Handlers are short and keep no state.

A frequent API may also define ``quick(node, version, correlation_id, frame, body)``. It turns the frame of the request
into the frame of the response, or returns None to leave the request to ``handle``. Brokers with an authorizer do not
use it. ``refuse(request, error)`` makes the response to a request that the client may not send; by default it has only
the error code and message. ``FIRST`` and ``LAST`` narrow the served versions; by default every version in the schemas
is served. ``TO_CONTROLLER`` means that other brokers forward the request to the controller, unless ``stays(request)``.
``ONLY_IN_CLUSTER`` means that only brokers of a cluster serve it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, NamedTuple

from ottla.protocol.apis import api
from ottla.protocol.codec import Buffer, Message
from ottla.security.permissions import Need, needs_of_request


class Handler(NamedTuple):
    """How an API is served."""

    name: str
    first: int
    last: int
    handle: Callable[..., Any]
    advertised_first: int
    """The first version that ApiVersions reports. It differs from ``first`` for Produce only."""
    quick: Callable[..., Buffer | None] | None
    to_controller: bool
    """Only the controller can answer. Other brokers forward the request."""
    stays: Callable[..., bool] | None
    """Whether a request is one that this broker answers nevertheless."""
    only_in_cluster: bool
    """The API is for the brokers of a cluster."""
    needs: tuple[Need, ...]
    """What a client needs for the request as a whole, unless ``handle`` checks that (``CHECKS_REQUEST``)."""
    refuse: Callable[..., Message | None] | None
    """Makes the response for a client that does not have it."""


def _handler(module: ModuleType) -> Handler:
    known = api(module.API)
    first, last = getattr(module, "FIRST", known.first), getattr(module, "LAST", known.last)
    advertised = getattr(module, "ADVERTISED_FIRST", first)
    return Handler(
        known.name,
        first,
        last,
        module.handle,
        advertised,
        getattr(module, "quick", None),
        getattr(module, "TO_CONTROLLER", False),
        getattr(module, "stays", None),
        getattr(module, "ONLY_IN_CLUSTER", False),
        () if getattr(module, "CHECKS_REQUEST", False) else needs_of_request(known.name),
        getattr(module, "refuse", None),
    )


HANDLERS: dict[int, Handler] = {
    int(module.API): _handler(module)
    for module in (import_module(f"{__name__}.{info.name}") for info in iter_modules(__path__))
}
