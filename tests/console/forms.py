"""Use forms as a browser does: take the hidden fields of a page, and send them."""

from __future__ import annotations

import html
import re

import httpx

_ACTION = re.compile(r' action="([^"]*)"')
_HIDDEN = re.compile(r'<input type="hidden" name="([^"]*)" value="([^"]*)">')


def csrf(page: httpx.Response) -> str:
    """The CSRF token of a page."""
    return dict(_HIDDEN.findall(page.text))["csrf"]


def confirm(client: httpx.Client, url: str, **values: str) -> httpx.Response:
    """Open an action with GET, then send its confirmation."""
    page = client.get(url, params=values)
    assert page.status_code == 200, page.text
    card = page.text[page.text.index('<form class="card"') :]
    hidden = {html.unescape(name): html.unescape(value) for name, value in _HIDDEN.findall(card)}
    assert "csrf" in hidden, "the page asks for more values"
    target = _ACTION.search(card)
    assert target is not None
    return client.post(html.unescape(target[1]), data=hidden)
