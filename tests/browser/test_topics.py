"""The topic pages and their actions in a browser."""

from __future__ import annotations

import pytest

from browser.conftest import THEMES, OpenPage, Screenshot
from ottla import Admin, Broker, NewTopic, Producer, TopicPartition

MARKUP = '<img src=x onerror="alert(1)"><script>alert(2)</script>'


def test_the_search_is_a_key_away(open_page: OpenPage, broker: Broker) -> None:
    with Admin(broker.client_config()) as admin:
        admin.create_topics([NewTopic("payments", 2), NewTopic("refunds", 2)])
    page = open_page("/topics")
    page.get_by_role("link", name="payments").wait_for()
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.type("REFUND")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="refunds").wait_for()
    assert page.url.endswith("?q=REFUND")
    assert page.get_by_role("link", name="payments").count() == 0


def test_a_topic_from_its_creation_to_its_end(open_page: OpenPage, broker: Broker, screenshot: Screenshot) -> None:
    page = open_page("/topics", refused=True)
    page.get_by_role("link", name="Create a topic").click()
    page.get_by_label("Name").fill("shipments")
    page.get_by_label("Partitions").fill("3")
    page.get_by_label("Configs").fill("retention.ms=604800000")
    page.get_by_role("button", name="Continue").click()
    page.get_by_text("ottla topics create shipments --partitions 3 --config retention.ms=604800000").wait_for()
    screenshot(page, "create-topic", height=520)
    page.get_by_role("button", name="Create").click()
    page.get_by_text("Created topic shipments.").wait_for()

    page.get_by_label("Change cleanup.policy").click()
    page.get_by_label("New value").fill("compact")
    page.get_by_role("button", name="Continue").click()
    page.get_by_role("button", name="Change", exact=True).click()
    page.get_by_text("Set cleanup.policy of shipments to compact.").wait_for()

    page.get_by_role("link", name="Add partitions").click()
    page.get_by_label("Partitions in all").fill("2")
    page.get_by_role("button", name="Continue").click()
    page.get_by_role("alert").get_by_text("cannot be removed").wait_for()
    page.get_by_label("Partitions in all").fill("5")
    page.get_by_role("button", name="Continue").click()
    page.get_by_role("button", name="Add").click()
    page.get_by_text("shipments has 5 partitions now.").wait_for()

    page.get_by_role("link", name="Delete", exact=True).click()
    page.get_by_role("link", name="Cancel").click()
    page.get_by_role("link", name="Delete", exact=True).click()
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_text("Deleted topic shipments.").wait_for()
    with Admin(broker.client_config()) as admin:
        assert "shipments" not in admin.list_topics()


def test_an_action_works_with_the_keyboard_alone(open_page: OpenPage, broker: Broker) -> None:
    page = open_page("/create-topic")
    page.get_by_label("Name").focus()
    page.keyboard.type("typed")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Create").focus()
    page.keyboard.press("Enter")
    page.get_by_text("Created topic typed.").wait_for()


def test_nothing_that_users_write_is_markup(open_page: OpenPage, broker: Broker) -> None:
    page = open_page("/topics?q=" + MARKUP.replace(" ", "%20"), refused=True)
    page.get_by_text("No topic matches").wait_for()
    for path in (f"/create-topic?name={MARKUP}&configs={MARKUP}", f"/topics/{MARKUP}", f"/login?next={MARKUP}"):
        page.goto(broker.console_url + path.replace(" ", "%20").replace("#", "%23"))
        assert page.locator("main img, main script").count() == 0
        assert page.evaluate("document.scripts.length") == 1
    with Admin(broker.client_config()) as admin:
        admin.create_topics(["marked"])
        admin.alter_group_offsets(MARKUP, {TopicPartition("marked", 0): 0})
    with Producer(broker.client_config()) as producer:
        producer.send("marked", value=MARKUP.encode())
    page.goto(broker.console_url)
    page.get_by_role("link", name=MARKUP).wait_for()
    page.get_by_role("link", name=MARKUP).click()
    assert page.locator("h1").inner_text().strip().startswith("<img")
    page.goto(broker.console_url + "/topics/marked")
    page.get_by_role("link", name=MARKUP).wait_for()
    assert page.locator("main img, main script").count() == 0


def test_small_screens(open_page: OpenPage, broker: Broker) -> None:
    with Admin(broker.client_config()) as admin:
        admin.create_topics([NewTopic("a-topic-with-a-rather-long-name.of-a-large-company", 30)])
    page = open_page("/topics", width=390, height=800)
    for path in ("/topics", "/topics/a-topic-with-a-rather-long-name.of-a-large-company", "/create-topic"):
        page.goto(broker.console_url + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path


@pytest.mark.parametrize("theme", THEMES)
def test_pictures_of_topics(open_page: OpenPage, broker: Broker, screenshot: Screenshot, theme: str) -> None:
    with Admin(broker.client_config()) as admin:
        wanted = {"orders": 6, "orders.dead": 1, "invoices": 3, "payments": 12, "clicks": 24, "inventory": 3}
        existing = admin.list_topics()
        own = {"cleanup.policy": "compact", "min.insync.replicas": "1"}
        admin.create_topics(
            [NewTopic(name, count, configs=own) for name, count in wanted.items() if name not in existing]
        )
    with Producer(broker.client_config()) as producer:
        for number in range(3000):
            producer.send("orders", key=b"%d" % number, value=b'{"amount": %d}' % number)
    page = open_page("/topics", theme=theme)
    page.locator(".pending").first.wait_for(state="detached")
    screenshot(page, f"topics-{theme}", height=620)
    page.goto(broker.console_url + "/topics/orders")
    page.locator(".pending").first.wait_for(state="detached")
    page.locator("#config-cleanup\\.policy summary").click()
    page.evaluate("scrollTo(0, 0)")
    screenshot(page, f"topic-{theme}", height=1000)
    page.set_viewport_size({"width": 390, "height": 800})
    page.evaluate("scrollTo(0, 0)")
    screenshot(page, f"small-{theme}")
