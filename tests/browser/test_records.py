"""The pages of records: reading, searching, following, copying and producing, with values that would like to act."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from browser.conftest import THEMES, OpenPage, Screenshot
from ottla import Admin, Broker, Consumer, NewTopic, Producer

CITIES = ("Kraków", "Köln", "Wien", "Brno")
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7 * 7 }} ${7*7} </pre></td></table><h1>big</h1>",
    "safe\u202egnp.exe \x1b[31mred\x1b[0m \x00 \u200bzero",
    "javascript:alert(1)\r\nSet-Cookie: a=b",
]


@pytest.fixture(scope="module")
def orders(broker: Broker) -> str:
    # The records of orders are old: on a slow machine retention would delete them before the last test.
    kept = NewTopic("orders", 3, configs={"retention.ms": "-1"})
    with Admin(broker.client_config()) as admin:
        admin.create_topics([kept, NewTopic("hostile", 1), NewTopic("tailed", 1), NewTopic("made", 2)])
    with Producer(broker.client_config()) as producer:
        for number in range(90):
            order = {
                "id": 1_000 + number,
                "customer": {"name": f"customer {number % 7}", "city": CITIES[number % 4]},
                "total": f"{number * 3.5:.2f}",
                "paid": number % 3 == 0,
            }
            producer.send(
                "orders",
                json.dumps(order, ensure_ascii=False).encode(),
                key=f"order-{1_000 + number}".encode(),
                partition=number % 3,
                timestamp=1_767_225_600_000 + number * 61_000,
                headers=[("trace", b"%08x" % (number * 2654435761 % 2**32))] if number % 2 else None,
            )
        producer.send("orders", None, key=b"order-1001", partition=0, timestamp=1_767_231_200_000)
        producer.send("orders", b"\x00\xff\x10binary\x80", key=b"raw", partition=1, timestamp=1_767_231_201_000)
        producer.send("orders", b"x" * 200_000, key=b"large", partition=2, timestamp=1_767_231_202_000)
        for text in HOSTILE:
            producer.send("hostile", text.encode(), key=text.encode(), partition=0, headers=[(text, text.encode())])
            producer.send("hostile", json.dumps({text: [text]}, ensure_ascii=False).encode(), partition=0)
    return "orders"


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("theme", THEMES)
def test_records(open_page: OpenPage, orders: str, screenshot: Screenshot, theme: str) -> None:
    page = open_page("/records", theme=theme)
    page.get_by_role("link", name=orders, exact=True).click()
    rows = page.locator("tr.record")
    assert rows.count() == 50
    assert "null" in rows.nth(2).inner_text()
    assert "ff 10" in rows.nth(1).inner_text()
    page.get_by_role("link", name="Older").click()
    page.get_by_role("link", name="Older").wait_for(state="detached")
    assert rows.count() == 43
    page.goto(page.url.split("?")[0] + "?q=krak%C3%B3w")
    assert rows.count() == 23
    page.get_by_text("23 records found").wait_for()
    screenshot(page, f"records-{theme}", height=900)


def test_the_form_leads_to_a_time_an_offset_and_formats(open_page: OpenPage, orders: str) -> None:
    page = open_page(f"/topics/{orders}/records")
    assert not page.get_by_label("Offset").is_visible()
    page.get_by_label("From").select_option("time")
    page.get_by_label("Time (UTC)").fill("2026-01-01T01:00")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**from=time**")
    assert page.locator("tr.record").first.locator("time").inner_text() >= "2026-01-01 01:00"
    page.get_by_label("From").select_option("offset")
    page.get_by_label("Offset").fill("3")
    page.get_by_label("Partitions").fill("1")
    page.get_by_text("How to show them").click()
    page.get_by_label("Values").select_option("hex")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**offset=3**")
    first = page.locator("tr.record").first
    assert first.locator(".place a").inner_text().replace(" ", "") == "1:3"
    assert "7b 22 69 64" in first.inner_text()


@pytest.mark.parametrize("path", ["", "?value=text", "/0/0"])
def test_values_are_never_markup(open_page: OpenPage, orders: str, path: str) -> None:
    page = open_page(f"/topics/hostile/records{path}")
    assert page.locator("h1").count() == 1
    assert page.locator("main img, main script").count() == 0
    assert "<script>alert(1)</script>" in page.locator("main").inner_text()
    if not path:
        odd = page.locator(".v-odd").all_inner_texts()
        assert {"U+202E", "␛", "␀", "U+200B", "␍"} <= set(odd)
        assert "\u202e" not in page.content()
        assert "49" not in page.locator("pre.value").all_inner_texts()


def test_one_record(open_page: OpenPage, orders: str, screenshot: Screenshot) -> None:
    page = open_page(f"/topics/{orders}/records/1/3")
    page.get_by_text("CreateTime").wait_for()
    command = page.locator(".command code").inner_text()
    assert command.startswith("printf '%s\\n' '{")
    screenshot(page, "record-light")
    page.get_by_role("navigation", name="Show the value").get_by_role("link", name="hex").click()
    page.get_by_text("7b 22 69 64").wait_for()
    page = open_page(f"/topics/{orders}/records/1/3", theme="dark")
    screenshot(page, "record-dark")
    page.goto(page.url.replace("/1/3", "/2/30"))
    with page.expect_download() as download:
        page.get_by_role("link", name="Download the 200,000 bytes").click()
    assert download.value.suggested_filename == "orders-2-30.bin"
    assert "ottla consume orders --partition 2 --offset 30" in page.locator(".command code").inner_text()


def test_the_copied_command_writes_the_record_again(open_page: OpenPage, broker: Broker, orders: str) -> None:
    page = open_page("/topics/hostile/records?from=start&limit=7")
    command = page.locator("tr.record").nth(6).locator("button.copy").get_attribute("data-copy")
    assert command is not None
    command = command.replace("ottla produce hostile", f"{sys.executable} -m ottla produce copied")
    subprocess.run(["sh", "-c", command], check=True, capture_output=True, timeout=60)
    with Consumer({**broker.client_config(), "auto.offset.reset": "earliest", "group.id": "copied"}) as consumer:
        consumer.subscribe(["copied"])
        wait_for(lambda: bool(found := list(consumer.poll(1))) and check(found[0]))


def check(record: object) -> bool:
    text = HOSTILE[3].encode()
    assert (record.key, record.value, record.headers) == (text, text, ((HOSTILE[3], text),))  # type: ignore[attr-defined]
    return True


def test_new_records_appear_while_following(
    open_page: OpenPage, broker: Broker, orders: str, screenshot: Screenshot
) -> None:
    page = open_page("/topics/tailed/records?follow=1")
    page.get_by_text("Following: new records appear here").wait_for()
    with Producer(broker.client_config()) as producer:
        producer.send("tailed", b'{"hello": "<b>world</b>"}', key=b"first")
        producer.flush()
        page.get_by_text("Following: 1 new").wait_for()
        assert "<b>world</b>" in page.locator("tr.record").first.inner_text()
        for number in range(500):
            producer.send("tailed", b"many %d" % number)
        producer.flush()
        page.get_by_text("many 499").wait_for()
        page.get_by_text("because more arrive than can be shown here").wait_for()
        assert page.locator("tr.record").count() <= 200
    assert broker._console is not None
    tails = broker._console.console.tails
    assert tails.count == 1
    page.goto("about:blank")
    wait_for(lambda: tails.count == 0)


@pytest.mark.parametrize("theme", THEMES)
def test_a_record_is_produced_after_confirmation(open_page: OpenPage, broker: Broker, orders: str, theme: str) -> None:
    page = open_page("/topics/made/records", theme=theme)
    page.get_by_role("link", name="Produce a record").first.click()
    page.get_by_label("Key", exact=False).first.fill("alice")
    value = json.dumps({"theme": theme}) + "\nsecond line"
    page.locator("#field-value").fill(value)
    page.locator("#field-headers").fill("trace: abc")
    page.locator("#field-partition").fill("1")
    page.get_by_role("button", name="Continue").click()
    shown = page.locator(".command code").inner_text()
    assert "| ottla produce made --json --partition 1" in shown
    page.get_by_role("button", name="Produce").click()
    page.get_by_text("Wrote the record to partition 1 of made at offset").wait_for()
    row = page.locator("tr.record").first
    assert "second line" in row.inner_text()
    assert "alice" in row.inner_text()
    row.locator(".place a").click()
    page.get_by_role("link", name="Edit and produce").click()
    assert page.locator("#field-value").input_value() == value


def test_small_screens(open_page: OpenPage, orders: str) -> None:
    for path in (f"/topics/{orders}/records", f"/topics/{orders}/records/1/3", f"/topics/{orders}/produce"):
        page = open_page(path, width=360, height=700)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
