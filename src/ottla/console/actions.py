"""One way to do an action: GET shows what will happen and the equivalent command, POST does it.

A page gives each action a function that turns the values of a form into a `Plan`, or into a `Form` if something is
missing or wrong:

    async def delete(request: Request, values: Values) -> Plan | Form:
        topic = request.path_params["topic"]
        access = access_of(request)

        async def do() -> str:
            await access.admin.delete_topics([topic])
            return f"Deleted topic {topic}."

        return Plan(f"Delete {topic}", ["All its records are lost."], ["topics", "delete", topic], do, danger=True)

    routes = [action("/topics/{topic:name}/delete", delete)]

`values` are the query of a GET, and the form of a POST. The plan shows a form whose hidden fields are the same values.
The guard (security.py) has checked the CSRF token and read-only mode before.
"""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ottla.console.render import NOTE_COOKIE, render
from ottla.console.security import CSRF_FIELD
from ottla.console.state import access_of, console_of
from ottla.console.views.commands import command_line
from ottla.errors import OttlaError

Values: TypeAlias = Mapping[str, str]
LONGEST_NOTE = 300


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a form. `kind` is text, number, textarea, checkbox, or select with `options` (value, label)."""

    name: str
    label: str
    value: str = ""
    kind: str = "text"
    help: str = ""
    options: Sequence[tuple[str, str]] = ()
    required: bool = False
    placeholder: str = ""


@dataclass(frozen=True, slots=True)
class Form:
    """What an action must know first. It leads to the plan with a GET, so it can be shared."""

    title: str
    fields: Sequence[Field]
    problem: str | None = None
    """What is wrong with the values so far."""
    text: str = ""
    button: str = "Continue"
    back: str = "/"


@dataclass(frozen=True, slots=True)
class Plan:
    """What an action will do, and how."""

    title: str
    effects: Sequence[str]
    """What will happen, in sentences."""
    command: Sequence[str]
    """The arguments of the equivalent `ottla` command, without those for the connection."""
    do: Callable[[], Awaitable[str]]
    """Does it. Returns a sentence that says what was done. An OttlaError is shown to the user."""
    button: str = "Confirm"
    danger: bool = False
    """Whether something is lost."""
    back: str = "/"
    """Where to go without doing it."""
    done: str | None = None
    """Where to go afterwards, if not `back`."""
    table: tuple[Sequence[str], Sequence[Sequence[object]]] | None = field(default=None)
    """Headers and rows with details, such as the offsets of a dry run."""
    input: str | None = None
    """What the command reads from standard input, if anything."""
    own_cluster: bool = False
    """Whether the command knows its cluster, so that the options for the connection would be wrong."""


Prepare: TypeAlias = Callable[[Request, Values], Awaitable[Plan | Form]]


def action(path: str, prepare: Prepare) -> Route:
    """The route of an action."""

    async def endpoint(request: Request) -> Response:
        if request.method == "POST":
            return await _do(request, prepare)
        values = {name: value for name, value in request.query_params.items() if name != CSRF_FIELD}
        return _show(request, await prepare(request, values), values)

    return Route(path, endpoint, methods=["GET", "POST"])


def _show(
    request: Request, found: Plan | Form, values: Values, problem: str | None = None, status: int = 200
) -> Response:
    # A plan does not change while somebody reads it, so there are no live updates (`still`).
    if isinstance(found, Form):
        return render(request, "form.html", 400 if found.problem else status, form=found, still=True)
    command = shown_command(request, found.command, found.input, own_cluster=found.own_cluster)
    hidden = list(values.items())
    return render(request, "plan.html", status, plan=found, command=command, hidden=hidden, problem=problem, still=True)


async def _do(request: Request, prepare: Prepare) -> Response:
    values = {name: value for name, value in request.state.form.items() if name != CSRF_FIELD}
    found = await prepare(request, values)
    if isinstance(found, Form):
        return _show(request, found, values)
    try:
        note = await found.do()
    except OttlaError as error:
        return _show(request, found, values, str(error), 409)
    access_of(request).collector.hurry()
    response = RedirectResponse(found.done or found.back, 303)
    response.set_cookie(
        NOTE_COOKIE, quote(note[:LONGEST_NOTE], errors="backslashreplace"), max_age=60, httponly=True, samesite="strict"
    )
    return response


def shown_command(
    request: Request, command: Sequence[str], standard_input: str | None = None, *, own_cluster: bool = False
) -> str:
    """A command that does the same, ready for a shell.

    An option of the connection comes last, so that the important part is in front.
    """
    text = command_line(command, () if own_cluster else console_of(request).settings.arguments)
    return text if standard_input is None else f"printf '%s\\n' {shlex.quote(standard_input)} | {text}"
