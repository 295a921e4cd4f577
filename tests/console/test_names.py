"""Groups with names that look like parts of addresses: every link for a group leads to this group."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from console.forms import confirm
from ottla import Admin, Broker, TopicPartition

WORDS = (
    "delete",
    "reset",
    "plan",
    "remove",
    "rebalances/0",
    "..",
    ".",
    "",
    "%2F",
    "~2F",
    "?q=1",
    "#top",
    "&amp;",
    "ü ",
)
NAMES = st.one_of(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map("/".join),
    st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20),
).filter(bool)
BELOW = ("", "/reset", "/delete", "/plan")


@pytest.fixture(scope="module")
def admin(broker: Broker) -> Iterator[Admin]:
    with Admin(broker.client_config()) as admin:
        admin.create_topics(["named"])
        yield admin


def links(page: httpx.Response) -> list[str]:
    assert page.status_code == 200, page.text
    return [html.unescape(one) for one in re.findall(r'href="([^"]*)"', page.text)]


def title(page: httpx.Response) -> str:
    assert page.status_code == 200, page.text
    found = re.search("<title>(.*?) · ottla</title>", page.content.decode(), re.DOTALL)
    assert found is not None
    return html.unescape(found[1])


# The threads of the broker use random numbers, too: for Hypothesis this looks like a strategy that does.
@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisDeprecationWarning")
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(name=NAMES)
@example(name="a/delete")
@example(name="..")
@example(name="../../topics")
@example(name="50% of\r\n<b>?#")
def test_every_link_of_a_group_leads_to_it(console: httpx.Client, admin: Admin, name: str) -> None:
    admin.alter_group_offsets(name, {TopicPartition("named", 0): 0})
    (own,) = [one for one in links(console.get("/groups", params={"q": name})) if shows(console, one, name)]
    page = console.get(own)
    below = [one for one in links(page) if one.startswith(own)]
    assert {urlsplit(one).path.removeprefix(own) for one in below} == set(BELOW)
    for one in below:
        target = console.get(one)
        assert target.status_code == 200
        assert f'<a href="{own}">' in target.text or one.partition("?")[0] == own, one
    (lab,) = {one for one in links(page) if one.startswith("/lab?")}
    assert parse_qs(urlsplit(lab).query)["group"] == [name]
    assert confirm(console, f"{own}/delete").status_code == 303
    assert name not in [one.group_id for one in admin.list_groups()]


def shows(console: httpx.Client, link: str, name: str) -> bool:
    return link.startswith("/groups/") and title(console.get(link)) == name


def test_a_name_is_not_taken_for_an_action(console: httpx.Client, admin: Admin) -> None:
    for name in ("pay", "pay/delete", "pay/reset"):
        admin.alter_group_offsets(name, {TopicPartition("named", 0): 0})
    # Also if somebody wrote the address by hand.
    page = console.get("/groups/pay%2Fdelete", follow_redirects=True)
    assert (str(page.url.raw_path, "ascii"), title(page)) == ("/groups/pay~2Fdelete", "pay/delete")
    assert title(console.get("/groups/pay%2Fdelete/delete", follow_redirects=True)) == "Delete group pay/delete"
    assert title(console.get("/groups/pay/delete")) == "Delete group pay"


def test_names_that_cannot_be_seen_are_shown(console: httpx.Client, admin: Admin) -> None:
    for name in ("", "pay\u202eroll\n"):
        admin.alter_group_offsets(name, {TopicPartition("named", 0): 0})
    page = console.get("/groups").text
    assert '<a href="/groups/~"><span class="unknown" title="Its name is empty">no name</span></a>' in page
    assert 'pay<span class="v-odd" title="U+202E right-to-left override">U+202E</span>roll' in page
    refused = console.get("/groups/~")
    assert (refused.status_code, "The group id is not valid" in refused.text) == (404, True)
