"""Templates. Everything is escaped: names, configs and records are never markup.

    return render(request, "topics.html", topics=found)

Templates extend `base.html` and import the macros of `macros.html`. The filters below show numbers and times the same
way on all pages.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, unquote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse

from ottla import __version__
from ottla.console.collector import Collector
from ottla.console.state import access_of, console_of
from ottla.console.views.commands import about, command_line, consumer_program
from ottla.console.views.names import name_of, segment
from ottla.console.views.paging import whole
from ottla.console.views.pieces import visible
from ottla.types import Millis

NOTE_COOKIE = "ottla_note"
THEME_COOKIE = "ottla_theme"
LONGEST_TEXT = 600
THEMES = ("auto", "light", "dark")
_STYLE = re.compile(r"<style>.*?</style>\s*|<rect class=\"bg\"[^>]*/>\s*", re.DOTALL)


def render(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """A page from a template."""
    note = request.cookies.get(NOTE_COOKIE)
    text = _ENVIRONMENT.get_template(template).render(**_shared(request), note=_unquoted(note), **values)
    # A form may have had bytes that are not UTF-8.
    response = HTMLResponse(text.encode("utf-8", "backslashreplace"), status)
    if note is not None:
        response.delete_cookie(NOTE_COOKIE)
    return response


def fragment(template: str, **values: Any) -> str:
    """A part of a page, for a stream of events."""
    return _ENVIRONMENT.get_template(template).render(**values)


def message_page(request: Request, title: str, text: str, status: int) -> HTMLResponse:
    """A page with a title and one sentence: what is wrong and what to do."""
    return render(request, "message.html", status, title=title, text=text, still=True)


def _shared(request: Request) -> dict[str, Any]:
    settings = console_of(request).settings
    theme = request.cookies.get(THEME_COOKIE)
    return {
        "request": request,
        "settings": settings,
        "collector": _collector(request),
        "nav": request.app.state.nav,
        "path": path_in(request),
        "section": _section(path_in(request)),
        "here": address_in(request),
        "theme": theme if theme in THEMES else "auto",
        "csrf": request.state.csrf,
        "user": request.state.user,
        "session": request.state.session,
        "version": __version__,
        "cli": lambda command, *names: command_line(about(command.split(), *names), settings.arguments),
    }


def _section(path: str) -> str:
    """The address of the page in the navigation to which a page belongs.

    >>> _section("/topics/orders"), _section("/topics/orders/records/0/7"), _section("/create-topic"), _section("/")
    ('/topics', '/records', '/topics', '/')
    """
    _, first, *rest = path.split("/")
    if first == "topics" and len(rest) > 1 and rest[1] in ("records", "produce"):
        return "/records"
    return "/topics" if first == "create-topic" else f"/{first}"


def path_in(request: Request) -> str:
    """The path of a request for use in pages. Names in it may have any characters, such as ``%41``."""
    return quote(request.scope["path"])


def address_in(request: Request) -> str:
    """The path and the query of a request, for use in pages."""
    query = request.scope["query_string"].decode("latin-1")
    return path_in(request) + (f"?{query}" if query else "")


def _collector(request: Request) -> Collector | None:
    """The collector of whoever asks; None before a login."""
    is_there = request.state.is_known and console_of(request).knows(request.state.user)
    return access_of(request).collector if is_there else None


def _unquoted(note: str | None) -> str | None:
    return None if note is None else unquote(note)


# ── addresses ─────────────────────────────────────────────────────────────────────────────────────────────────────


class _NameConvertor(Convertor[str]):
    """A name in the path of a route: ``/groups/{group:name}``."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return name_of(value)

    def to_string(self, value: str) -> str:
        return segment(value)


register_url_convertor("name", _NameConvertor())


def number_in(request: Request, name: str) -> int:
    """A whole number of the path, or the page that says what is wrong."""
    text = request.path_params[name]
    found = whole(text)
    if found is None:
        raise HTTPException(
            404,
            f"The {name} in this address must be a whole number from 0 on, with at most 18 digits, not {text[:40]!r}.",
        )
    return found


# ── what templates and views can use ──────────────────────────────────────────────────────────────────────────────


def unknown(why: str) -> Markup:
    """What is shown for a value that the cluster does not tell. Never show 0 for it.

    >>> str(unknown("Apache Kafka keeps no history"))
    '<span class="unknown" title="Apache Kafka keeps no history">unknown</span>'
    """
    return Markup('<span class="unknown" title="{}">unknown</span>').format(why)


def pending(why: str = "being read") -> Markup:
    """What is shown until a value has arrived."""
    return Markup('<span class="pending" title="{}">…</span>').format(why)


def number(value: float | None, digits: int = 0) -> Markup:
    """
    >>> str(number(1234567)), str(number(0.25, 2))
    ('1,234,567', '0.25')
    """
    return unknown("the cluster does not tell it") if value is None else escape(f"{value:,.{digits}f}")


def rate(value: float | None) -> Markup:
    """Per second.

    >>> str(rate(12.34)), str(rate(1234.5)), str(rate(0)), str(rate(0.01))
    ('12.3', '1,234', '0', '&lt;0.1')
    """
    if value is not None and 0 < value < 0.05:
        return escape("<0.1")
    return number(value, 1 if value is not None and 0 < value < 100 else 0)


def size(value: float | None) -> Markup:
    """Bytes.

    >>> str(size(532)), str(size(12_300_000))
    ('532 B', '12.3 MB')
    """
    if value is None:
        return unknown("the brokers do not tell sizes")
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= factor:
            return escape(f"{value / factor:.1f} {unit}")
    return escape(f"{value:.0f} B")


def duration(seconds: float | None) -> Markup:
    """
    >>> str(duration(0.4)), str(duration(74.9)), str(duration(7300)), str(duration(200_000))
    ('0.4 s', '1 min 15 s', '2 h 1 min', '2 d 7 h')
    """
    if seconds is None:
        return unknown("not known yet")
    if seconds < 60:
        return escape(f"{seconds:.1f} s" if 0 < seconds < 10 else f"{seconds:.0f} s")
    whole = round(seconds)
    for high, low, unit, smaller in ((86400, 3600, "d", "h"), (3600, 60, "h", "min"), (60, 1, "min", "s")):
        if whole >= high:
            rest = whole % high // low
            return escape(f"{whole // high} {unit}" + (f" {rest} {smaller}" if rest else ""))
    raise AssertionError


def moment(at: Millis | None) -> Markup:
    """A time in UTC; the browser adds its own in the title.

    >>> str(moment(0))
    '<time datetime="1970-01-01T00:00:00.000Z">1970-01-01 00:00:00</time>'
    """
    if at is None or at < 0:
        return unknown("no time")
    try:
        when = datetime.fromtimestamp(at / 1000, tz=UTC)
    except (OverflowError, ValueError, OSError):
        return Markup('<span title="milliseconds since 1970, after the year 9999">{}</span>').format(f"{at:,} ms")
    exact = when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Markup('<time datetime="{}">{}</time>').format(exact, f"{when:%Y-%m-%d %H:%M:%S}")


def chart(svg: str) -> Markup:
    """A chart of `ottla.charts` in the page: its colours come from console.css, so the theme applies."""
    return Markup(_STYLE.sub("", svg).replace("<svg ", '<svg class="chart" ', 1))


def named(text: str) -> Markup:
    r"""A name that anybody may have chosen: what cannot be seen is made visible, and an empty name has a mark.

    >>> str(named("billing")), str(named("a\x00"))
    ('billing', 'a<span class="v-odd" title="U+0000">␀</span>')
    """
    if not text:
        return Markup('<span class="unknown" title="Its name is empty">no name</span>')
    pieces = visible(text, breaks=False)
    odd = Markup('<span class="v-odd" title="{}">{}</span>')
    return Markup("").join(odd.format(one.title, one.text) if one.kind == "odd" else escape(one.text) for one in pieces)


def told(text: str) -> Markup:
    """What is wrong, which may repeat what somebody wrote: not too long, and with all characters visible.

    >>> str(told("topic " + "x" * 1000 + " does not exist"))[-5:]
    'xxxx…'
    """
    return named(text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…")


def part(text: object) -> str:
    """A name as a part of a path: ``/groups/{{ group | part }}``."""
    return segment(str(text))


def with_query(path: str, **values: object) -> str:
    """A URL with these values in the query; None and empty texts are left out.

    >>> with_query("/topics", q="a b", page=None)
    '/topics?q=a+b'
    """
    given = {name: str(value) for name, value in values.items() if value is not None and value != ""}
    return f"{path}?{urlencode(given)}" if given else path


def plural(count: int, noun: str) -> str:
    """
    >>> plural(1, "topic"), plural(2000, "topic")
    ('1 topic', '2,000 topics')
    """
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("ottla.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=number,
        rate=rate,
        size=size,
        duration=duration,
        moment=moment,
        named=named,
        told=told,
        part=part,
        chart=chart,
    )
    environment.globals.update(
        unknown=unknown, pending=pending, with_query=with_query, plural=plural, consumer_program=consumer_program
    )
    return environment


_ENVIRONMENT = _environment()


def prepare() -> None:
    """Compile what the first page needs, so that nobody waits for it."""
    for name in ("base.html", "macros.html", "overview.html"):
        _ENVIRONMENT.get_template(name)
