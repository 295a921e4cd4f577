"""Log in and out, and the switch between light and dark."""

from __future__ import annotations

import time
import unicodedata

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from ottla.console.render import THEME_COOKIE, THEMES, render
from ottla.console.security import SESSION_COOKIE, Guard, Refused, address_of
from ottla.console.sessions import LASTS, same
from ottla.console.state import console_of
from ottla.errors import KafkaError, SaslAuthenticationFailed

_YEAR = 365 * 24 * 3600


async def show(request: Request) -> Response:
    if not console_of(request).settings.asks_who:
        return RedirectResponse("/", 303)
    return render(request, "login.html", problem=None, target=_target(request.query_params.get("next", "/")))


async def log_in(request: Request) -> Response:
    guard: Guard = request.state.guard
    try:
        guard.check_attempts(request)
    except Refused as refused:
        return refused.response
    form = request.state.form
    target = _target(form.get("next", "/"))
    # It counts before the brokers answer: many attempts at once must not get past the limit.
    attempt = guard.failures.failed(address_of(request), now=time.monotonic())
    problem, user = await _problem(request)
    if problem is not None:
        return render(request, "login.html", 401, problem=problem, target=target)
    guard.failures.succeeded(address_of(request), attempt)
    response = RedirectResponse(target, 303)
    session = guard.sessions.begin(user, now=time.monotonic())
    await console_of(request).keep_only(guard.sessions.users(now=time.monotonic()))
    response.set_cookie(
        SESSION_COOKIE,
        session.id,
        max_age=int(LASTS),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return response


async def _problem(request: Request) -> tuple[str | None, str | None]:
    """What is wrong with the login, or whose it is."""
    console, form = console_of(request), request.state.form
    if console.settings.token is not None:
        return (None if same(form.get("token", ""), console.settings.token) else "The token is wrong.", None)
    user, password = form.get("user", ""), form.get("password", "")
    if not user or not password:
        return "Give a name and a password.", None
    if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in user + password):
        return "A name and a password cannot have control characters.", None
    try:
        await console.log_in(user, password)
    except SaslAuthenticationFailed:
        return "The brokers refuse this name and password.", None
    except KafkaError as error:
        return f"The brokers cannot be asked: {error}", None
    return None, user


async def log_out(request: Request) -> Response:
    guard: Guard = request.state.guard
    if request.state.session is not None:
        guard.sessions.end(request.state.session.id)
        await console_of(request).keep_only(guard.sessions.users(now=time.monotonic()))
    response = RedirectResponse("/login", 303)
    response.delete_cookie(SESSION_COOKIE)
    return response


async def set_theme(request: Request) -> Response:
    theme = request.state.form.get("theme", "")
    if theme not in THEMES:
        return PlainTextResponse(f"theme must be one of {', '.join(THEMES)}\n", 400)
    response = RedirectResponse(_target(request.state.form.get("next", "/")), 303)
    response.set_cookie(THEME_COOKIE, theme, max_age=_YEAR, httponly=True, samesite="strict")
    return response


def _target(given: str) -> str:
    r"""Where to go next: only within the console.

    >>> _target("/topics?q=a"), _target("//evil.example"), _target("https://evil.example"), _target("/\\evil")
    ('/topics?q=a', '/', '/', '/')
    """
    is_here = given.startswith("/") and not given.startswith(("//", "/\\")) and given.isprintable()
    return given if is_here else "/"


routes = [
    Route("/login", show),
    Route("/login", log_in, methods=["POST"]),
    Route("/logout", log_out, methods=["POST"]),
    Route("/theme", set_theme, methods=["POST"]),
]
