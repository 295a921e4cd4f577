"""The pages of the console, one module each.

How to add a page:

1. Write `pages/<name>.py` with `title` (in the navigation), `path` (of its first page) and `routes`. Add its name to
   `NAMES`. If it imports much, add it to `LATER`. A route's function is thin: read the query, ask `access_of(request)`
   (state.py), call a function of `views/`, `render`. Names in paths are `{topic:name}` (views/names.py), and in
   templates `/topics/{{ topic | part }}`.
2. Compute what the page shows in `views/<name>.py`: pure functions from answers of the cluster to small dataclasses.
3. Write `templates/<name>.html`. It extends `base.html`; `macros.html` has tables, status marks, pagers and empty
   states. Mark what changes with `data-live="some-name"`: console.js keeps it up to date. There is no inline script or
   style, the content security policy forbids both.
4. What is unknown is `unknown("why")`, what has not arrived is `pending()`. What is missing says what to do.
5. Changes of the cluster are actions (actions.py).
6. `access_of(request).collector` has what was read for all pages: `await collector.current()` is a `Snapshot`.

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    async def show(request: Request) -> Response:
        snapshot = await access_of(request).collector.current()
        return render(request, "topics.html", topics=topic_rows(snapshot, request.query_params.get("q", "")))

    title, path = "Topics", "/topics"
    routes = [Route("/topics", show)]
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

NAMES = ("overview", "topics", "records", "groups", "transactions", "pipelines", "lab")
LATER = {"pipelines": ("Pipelines", "/pipelines"), "lab": ("Lab", "/lab")}
"""Pages that import much: titles and paths. Their modules are imported when somebody opens them."""
_CHOSEN = "ottla.route"


class Page(NamedTuple):
    """A page of the navigation."""

    title: str
    path: str
    routes: Sequence[BaseRoute]


def pages() -> list[Page]:
    """The pages in the order of the navigation."""
    return [_page(name) for name in NAMES]


def _page(name: str) -> Page:
    if name in LATER:
        title, path = LATER[name]
        return Page(title, path, [_Later(path, f"{__name__}.{name}")])
    module = importlib.import_module(f"{__name__}.{name}")
    return Page(module.title, module.path, module.routes)


def all_routes() -> Iterator[BaseRoute]:
    """The routes of all pages, also of those in `LATER`."""
    for route in (route for page in pages() for route in page.routes):
        yield from route.routes if isinstance(route, _Later) else [route]


class _Later(BaseRoute):
    """The routes of a module that is imported for the first request below a path."""

    def __init__(self, path: str, module: str) -> None:
        self._path = path
        self._module = module

    @cached_property
    def routes(self) -> Sequence[BaseRoute]:
        found: Sequence[BaseRoute] = importlib.import_module(self._module).routes
        return found

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        path = scope["path"]
        if path != self._path and not path.startswith(f"{self._path}/"):
            return Match.NONE, {}
        found = [(match, {**more, _CHOSEN: one}) for one in self.routes for match, more in [one.matches(scope)]]
        # As Starlette does: the first that fits, or else one of another method.
        order = (Match.FULL, Match.PARTIAL)
        return next((one for wanted in order for one in found if one[0] is wanted), (Match.NONE, {}))

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await scope[_CHOSEN].handle(scope, receive, send)
