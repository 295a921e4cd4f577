"""Who may use the console, and how browsers are told to protect it.

`Guard` stands before all pages. In this order it checks the host (against names of other sites that lead here), who
asks, the origin and the CSRF token of forms, and read-only mode. Pages get `request.state.user` and
`request.state.form`. No page can forget a check.
"""

from __future__ import annotations

import logging
import time
from urllib.parse import parse_qsl, quote, urlsplit

from starlette.datastructures import ImmutableMultiDict, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ottla.console.render import address_in, message_page
from ottla.console.sessions import Failures, Session, Sessions, csrf_token, same
from ottla.console.settings import is_loopback
from ottla.console.state import Console
from ottla.console.views.names import with_whole_names

logger = logging.getLogger(__name__)

SESSION_COOKIE = "ottla_session"
CSRF_FIELD = "csrf"
CSRF_HEADER = "x-csrf-token"
LARGEST_FORM = 8 * 1024 * 1024
LARGEST_LOGIN = 16 * 1024
"""Bytes of a form from somebody who is not known."""
OPEN = ("/login", "/static/", "/healthz")
"""Paths that need no login."""
ALWAYS_ALLOWED = ("/login", "/logout", "/theme")
"""What changes nothing in the cluster, so it works in read-only mode."""
HEADERS = {
    "content-security-policy": (
        "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Refused(Exception):
    """A request that gets this response."""

    def __init__(self, response: Response) -> None:
        self.response = response


class Guard:
    """The ASGI middleware in front of all pages."""

    def __init__(self, app: ASGIApp, console: Console) -> None:
        self._app = app
        self._console = console
        self._settings = console.settings
        self.sessions = Sessions()
        self.failures = Failures()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        scope.setdefault("state", {})
        scope["app"] = self._app
        scope["state"].update(guard=self, user=None, session=None, is_known=False, csrf="", form=ImmutableMultiDict())
        protected = _with_headers(scope["path"], send)
        try:
            await self._check(Request(scope, receive), scope)
        except Refused as refused:
            await refused.response(scope, receive, protected)
            return
        try:
            await self._app(scope, receive, protected)
        except Exception:
            # The application has answered and logged it.
            logger.debug("a page failed", exc_info=True)

    async def _check(self, request: Request, scope: Scope) -> None:
        # Not `request.url`: it has the host in it, and with some versions of Starlette a host can change the path.
        path = scope["path"]
        self._check_host(request)
        whole = with_whole_names(scope.get("raw_path") or b"")
        if whole is not None:
            raise Refused(_elsewhere(request, whole))
        _check_site(request)
        session, by_header = self._who(request)
        state = scope["state"]
        state["session"] = session
        state["user"] = session.user if session is not None else None
        # Before a login a form cannot do anything that the form's sender could not.
        state["csrf"] = csrf_token(self._console.secret, session.id if session is not None else "")
        state["is_known"] = session is not None or by_header or not self._settings.asks_who
        if not state["is_known"] and not _is_open(path):
            raise Refused(_ask_to_log_in(request))
        if request.method in ("GET", "HEAD"):
            return
        _check_origin(request)
        form = await _read_form(request, LARGEST_FORM if state["is_known"] else LARGEST_LOGIN)
        if not by_header and not same(form.get(CSRF_FIELD) or request.headers.get(CSRF_HEADER, ""), state["csrf"]):
            text = "This form is from an earlier session. Go back, load the page again, and repeat it."
            raise Refused(message_page(request, "Form refused", text, 403))
        state["form"] = form
        if self._settings.read_only and path not in ALWAYS_ALLOWED:
            text = "This console only shows things. Start it without --read-only to change them."
            raise Refused(message_page(request, "Read-only", text, 403))

    def _check_host(self, request: Request) -> None:
        """Without a login, the name of another site that leads to this machine must not get in (DNS rebinding)."""
        name = _host_name(request.headers.get("host", ""))
        if not self._settings.asks_who and not is_loopback(name) and name != self._settings.host:
            raise Refused(PlainTextResponse(f"{name!r} is not an address of this console: use 127.0.0.1\n", 421))

    def _who(self, request: Request) -> tuple[Session | None, bool]:
        """The session of the cookie, or whether the header has the token."""
        session = self.sessions.find(request.cookies.get(SESSION_COOKIE, ""), now=time.monotonic())
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        token = self._settings.token
        if session is not None or token is None or kind.lower() != "bearer":
            return session, False
        self.check_attempts(request)
        if not same(given.strip(), token):
            self.failures.failed(address_of(request), now=time.monotonic())
            raise Refused(PlainTextResponse("the token is wrong\n", 401, {"www-authenticate": "Bearer"}))
        return None, True

    def check_attempts(self, request: Request) -> None:
        """Refuse an address that tried too often."""
        wait = self.failures.wait(address_of(request), now=time.monotonic())
        if wait > 0:
            text = f"Too many failed logins from this address. Try again in {wait:.0f} s."
            response = message_page(request, "Too many attempts", text, 429)
            response.headers["retry-after"] = str(int(wait) + 1)
            raise Refused(response)


def is_still_known(request: Request) -> bool:
    """Whether a long answer may go on: the session has not ended meanwhile."""
    guard: Guard = request.state.guard
    session: Session | None = request.state.session
    return session is None or guard.sessions.find(session.id, now=time.monotonic()) is not None


def owner_of(request: Request) -> str:
    """Who keeps something open: a user, a session, or an address if nobody has to log in."""
    session: Session | None = request.state.session
    if request.state.user is not None:
        return f"user {request.state.user}"
    return f"session {session.id}" if session is not None else f"address {address_of(request)}"


def address_of(request: Request) -> str:
    return request.client.host if request.client is not None else ""


def _host_name(host: str) -> str:
    """
    >>> _host_name("localhost:8080"), _host_name("[::1]:8080"), _host_name("[broken")
    ('localhost', '::1', '')
    """
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_open(path: str) -> bool:
    return any(path == one or (one.endswith("/") and path.startswith(one)) for one in OPEN)


def _ask_to_log_in(request: Request) -> Response:
    if request.method != "GET" or "text/html" not in request.headers.get("accept", ""):
        return PlainTextResponse("log in first, or send the token as a bearer token\n", 401)
    return RedirectResponse(f"/login?next={quote(address_in(request), safe='')}", 303)


def _elsewhere(request: Request, path: str) -> Response:
    query = request.scope["query_string"].decode("latin-1")
    return RedirectResponse(path + (f"?{query}" if query else ""), 307)


def _check_site(request: Request) -> None:
    """Other sites may link here. They may not load our pages as pictures, frames or scripts: reading costs time."""
    given = request.headers
    is_link = given.get("sec-fetch-mode") == "navigate" and given.get("sec-fetch-dest") == "document"
    is_ours = given.get("sec-fetch-site", "none") in ("same-origin", "none")
    if request.method in ("GET", "HEAD") and not is_ours and not is_link:
        raise Refused(PlainTextResponse("another site asks for this: open the address itself\n", 403))


def _check_origin(request: Request) -> None:
    origin = request.headers.get("origin")
    host = request.headers.get("host", "")
    foreign = origin is not None and origin.partition("://")[2] != host
    if foreign or request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Refused(message_page(request, "Form refused", "This form comes from another site.", 403))


async def _read_form(request: Request, largest: int) -> ImmutableMultiDict[str, str]:
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise Refused(PlainTextResponse("send a form (application/x-www-form-urlencoded)\n", 415))
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > largest:
            raise Refused(PlainTextResponse(f"a form may have at most {largest:,} bytes\n", 413))
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="surrogateescape", max_num_fields=1000)
    except ValueError:
        raise Refused(PlainTextResponse("the form cannot be read\n", 400)) from None
    return ImmutableMultiDict(pairs)


def _with_headers(path: str, send: Send) -> Send:
    async def protected(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update(HEADERS)
            # Pages show data of the cluster. Files of the package do not change while it runs.
            headers.setdefault("cache-control", "no-cache" if path.startswith("/static/") else "no-store")
        await send(message)

    return protected
