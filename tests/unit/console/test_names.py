"""No name can be taken for another one, or for a part of an address."""

from __future__ import annotations

import re
from urllib.parse import unquote, urljoin, urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from starlette.routing import Match, Route

from ottla.console.pages import all_routes
from ottla.console.views.names import name_of, segment, with_whole_names

ROUTES = [route for route in all_routes() if isinstance(route, Route)]
NAMED = [route for route in ROUTES if ":name}" in route.path]
WORDS = sorted({word for route in ROUTES for word in route.path.split("/") if word and "{" not in word})
NASTY = st.one_of(
    st.text(),
    st.text(alphabet="/.%?#~;\\ +&=2FfEeu0é\n\x00"),
    st.lists(st.sampled_from([*WORDS, "", ".", "..", "~", "~2F", "%2F", "0"]), max_size=4).map("/".join),
)


def _followed(address: str) -> str:
    """The path that a server gets when a browser follows a link: dots are resolved, also encoded ones."""
    dots = re.sub("%2e", ".", address, flags=re.IGNORECASE)
    return unquote(urlsplit(urljoin("http://127.0.0.1/groups", dots)).path)


@pytest.mark.parametrize("route", NAMED, ids=lambda route: route.path)
@given(name=NASTY)
@example(name="")
@example(name="..")
@example(name="a/delete")
@example(name="a%2Fdelete")
@example(name="a~2Fdelete")
def test_an_address_leads_to_exactly_its_name(route: Route, name: str) -> None:
    address = re.sub(r"\{\w+:name\}", segment(name).replace("\\", r"\\"), route.path)
    scope = {"type": "http", "method": "GET", "path": _followed(re.sub(r"\{\w+\}", "0", address))}
    found = [(one, more) for one in ROUTES for match, more in [one.matches(scope)] if match is Match.FULL]
    assert found, scope["path"]
    first, more = found[0]
    assert (first.path, next(iter(more["path_params"].values()))) == (route.path, name)


@given(st.text(alphabet=st.characters()))
@example("\udcff")
def test_every_text_is_one_segment(name: str) -> None:
    text = segment(name)
    assert text.isascii()
    assert not set(text) & set("/?#\\;")
    assert text not in ("", ".", "..")
    assert name_of(unquote(text)) == name


def test_ordinary_names_stay_as_they_are() -> None:
    for name in ("billing", "orders-v2.dead_letters", "connect-sink"):
        assert segment(name) == name


def test_slashes_that_somebody_encoded_are_a_part_of_the_name() -> None:
    assert with_whole_names(b"/groups/a%2Fb%2fdelete") == "/groups/a~2Fb~2Fdelete"
    assert with_whole_names(b"//evil.example/%2f") is None
