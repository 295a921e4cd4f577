"""Every page with 10,000 partitions, light and dark."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from browser.conftest import THEMES, OpenPage
from ottla import Admin, Broker, NewTopic, Producer, TopicPartition

TOPICS, PARTITIONS = 500, 20


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker with many partitions and groups; every group has one unread record in each partition."""
    with Broker(console=True) as broker:
        with Admin(broker.client_config()) as admin, Producer(broker.client_config()) as producer:
            names = [f"topic-{number:03}" for number in range(TOPICS)]
            for start in range(0, TOPICS, 50):
                admin.create_topics([NewTopic(name, PARTITIONS) for name in names[start : start + 50]])
            for name in names[:50]:
                for partition in range(PARTITIONS):
                    producer.send(name, value=b"unread", partition=partition)
            for number in range(50):
                offsets = {TopicPartition(names[number], one): 0 for one in range(PARTITIONS)}
                admin.alter_group_offsets(f"group-{number:03}", offsets)
        yield broker


@pytest.mark.parametrize("theme", THEMES)
def test_every_page_opens(open_page: OpenPage, theme: str) -> None:
    page = open_page("/", theme=theme)
    # Those of the internal topic come on top.
    page.locator(".fact", has_text="Partitions").get_by_text(re.compile("^10,0")).wait_for()
    page.get_by_role("link", name="group-000").wait_for()
    addresses = [link.evaluate("one => one.href") for link in page.locator("header nav a").all()]
    inner = ["/topics/topic-000", "/topics/topic-000/records", "/topics/topic-000/records/0/0", "/groups/group-000"]
    actions = ["/groups/group-000/reset?to=latest", "/groups/group-000/delete", "/topics/topic-000/delete"]
    for address in [*addresses, *(page.url.rstrip("/") + one for one in [*inner, *actions])]:
        response = page.goto(address)
        assert response is not None
        assert response.status == 200, address
        assert page.locator("h1").count() == 1, address


def test_a_topic_is_found_among_many(open_page: OpenPage) -> None:
    page = open_page("/topics")
    page.get_by_text("500 topics").first.wait_for()
    page.get_by_role("link", name="Next →").first.click()
    page.get_by_role("link", name="topic-050").wait_for()
    page.get_by_label("Search topics").fill("499")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name="topic-499").click()
    page.get_by_role("heading", name="topic-499").wait_for()
    assert page.locator("[data-live=partitions] tbody tr").count() == PARTITIONS
