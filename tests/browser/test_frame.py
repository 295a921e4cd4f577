"""What all pages share: navigation, themes, keyboard, small screens, live updates."""

from __future__ import annotations

import pytest

from browser.conftest import THEMES, OpenPage, Screenshot
from ottla import Admin, Broker, Producer, TopicPartition


def _background(page: object) -> str:
    return page.evaluate("getComputedStyle(document.body).backgroundColor")  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize("theme", THEMES)
def test_every_page_of_the_navigation_opens(open_page: OpenPage, theme: str) -> None:
    page = open_page("/", theme=theme)
    links = page.locator("header nav a").all()
    for name, address in [(link.inner_text(), link.evaluate("one => one.href")) for link in links]:
        response = page.goto(address)
        assert response is not None
        assert response.status == 200, name
        assert page.locator("h1").count() == 1, name
        assert page.locator("nav [aria-current=page]").inner_text() == name


def test_the_switch_changes_the_theme(open_page: OpenPage) -> None:
    page = open_page("/", theme="light")
    light = _background(page)
    page.get_by_role("button", name="Colours: auto").click()
    page.get_by_role("button", name="Colours: dark").wait_for()
    page.wait_for_load_state()
    dark = _background(page)
    assert dark != light
    page.reload()
    assert _background(page) == dark
    page.get_by_role("button", name="Colours: dark").click()
    page.get_by_role("button", name="Colours: light").wait_for()
    page.wait_for_load_state()
    assert _background(page) == light


def test_new_topics_appear_without_a_reload(open_page: OpenPage, broker: Broker) -> None:
    page = open_page("/")
    topics = page.locator(".fact", has_text="Topics").locator("dd")
    topics.get_by_text("…").wait_for(state="detached")
    before = int(topics.inner_text().replace(",", ""))
    with Admin(broker.client_config()) as admin:
        admin.create_topics(["appears-live"])
    topics.get_by_text(str(before + 1), exact=True).wait_for()
    assert page.locator(".live-state").inner_text().strip().endswith("live")


def test_the_keyboard_is_enough(open_page: OpenPage) -> None:
    page = open_page("/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Shift+Tab")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_a_small_screen_has_one_column(open_page: OpenPage) -> None:
    page = open_page("/", width=360, height=700)
    for address in [link.evaluate("one => one.href") for link in page.locator("header nav a").all()]:
        page.goto(address)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, address


def test_overview(open_page: OpenPage, broker: Broker, screenshot: Screenshot) -> None:
    with Producer(broker.client_config()) as producer:
        for number in range(200):
            producer.send("orders", key=b"%d" % number, value=b"{}")
    with Admin(broker.client_config()) as admin:
        for group, offset in {"billing": 50, "shipping": 185, "search-index": 0}.items():
            admin.alter_group_offsets(group, {TopicPartition("orders", 0): offset})
    for theme in THEMES:
        page = open_page("/", theme=theme)
        page.get_by_role("link", name="billing").wait_for()
        page.locator(".pending").first.wait_for(state="detached")
        row = page.locator("tr", has_text="billing")
        assert row.get_by_text("150", exact=True).is_visible()
        screenshot(page, f"overview-{theme}")
