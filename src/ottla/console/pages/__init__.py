"""The pages of the console, one module each.

How to add a page:

1. Write `pages/<name>.py` with `title` (in the navigation), `path` (of its first page) and `routes`. Add its name to
   `NAMES`. A route's function is thin: read the query, ask `access_of(request)` (state.py), call a function of
   `views/`, `render`.
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
import importlib.util
from collections.abc import Sequence
from typing import NamedTuple

from starlette.routing import BaseRoute

NAMES = ("overview", "topics", "records", "groups", "transactions", "pipelines", "lab")


class Page(NamedTuple):
    """A page of the navigation."""

    title: str
    path: str
    routes: Sequence[BaseRoute]


def pages() -> list[Page]:
    """The pages in the order of the navigation."""
    names = [f"{__name__}.{name}" for name in NAMES]
    modules = [importlib.import_module(name) for name in names if importlib.util.find_spec(name) is not None]
    return [Page(module.title, module.path, module.routes) for module in modules]
