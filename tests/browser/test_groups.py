"""Groups and the lab in a browser, with the prepared case: a group that rebalanced 20 times in an hour."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from browser.conftest import THEMES, OpenPage, Screenshot
from browser.slow_member import GROUP, SLOW, prepared_case
from ottla import Admin, Broker, TopicPartition


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with prepared_case(console=True) as broker:
        yield broker


def test_a_new_user_finds_the_cause_and_the_setting(open_page: OpenPage, screenshot: Screenshot) -> None:
    """From the overview: two clicks to the answer, one more to the setting that would have helped."""
    page = open_page("/")
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Groups").click()  # click 1
    page.get_by_role("link", name=GROUP, exact=True).click()  # click 2
    why = page.get_by_role("region", name="Why it rebalanced")
    answer = why.inner_text()
    assert "Rebalanced 20 times in the last hour" in answer
    assert f"{SLOW} on 127.0.0.1 did not poll within max.poll.interval.ms (1 min 0 s), left, and came back" in answer
    assert f"Raise max.poll.interval.ms of {SLOW}" in answer
    why.get_by_role("link", name="Replay it in the lab").click()  # click 3
    helped = page.get_by_role("region", name="What would have helped")
    helped.wait_for(timeout=120_000)
    assert helped.inner_text().startswith("max.poll.interval.ms=120000 would have helped most: 0 s instead of")
    screenshot(page, "lab-replay")
    page.reload()
    assert helped.is_visible(), "a reload does not compute again"


def test_a_mark_of_the_chart_opens_its_rebalance(open_page: OpenPage, screenshot: Screenshot) -> None:
    page = open_page(f"/groups/{GROUP}")
    marks = page.locator("svg.chart a")
    assert marks.count() == 20
    # The first rebalance of the hour is #1: all joined in #0.
    marks.first.locator(".mark").click()
    page.wait_for_url(re.compile(r"/rebalances/1\?"))
    shared = page.url
    cause = page.get_by_role("region", name="Cause").inner_text()
    assert f"{SLOW} on 127.0.0.1 did not poll within max.poll.interval.ms" in cause
    assert "Raise max.poll.interval.ms" in cause
    text = page.locator("main").inner_text()
    assert "no poll for longer than max.poll.interval.ms (60000)" in text
    assert "waited for members to join" in text
    assert "3 kept" in text or "5 kept" in text
    screenshot(page, "rebalance")
    page.get_by_role("link", name="#2 →").click()
    page.get_by_text("member joined").wait_for()
    assert open_page(shared.partition("/groups")[1] + shared.partition("/groups")[2]).locator("h1").inner_text() == (
        "Rebalance #1"
    )


def test_the_marks_work_with_the_keyboard(open_page: OpenPage) -> None:
    page = open_page(f"/groups/{GROUP}")
    page.locator("svg.chart a").nth(3).focus()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/rebalances/4\?"))


@pytest.mark.parametrize("theme", THEMES)
def test_charts_in_both_themes(open_page: OpenPage, theme: str, screenshot: Screenshot) -> None:
    page = open_page(f"/groups/{GROUP}", theme=theme, height=1000)
    band = page.locator("svg.chart .band").first
    paper = page.evaluate("getComputedStyle(document.querySelector('svg.chart')).backgroundColor")
    ink = page.evaluate("getComputedStyle(document.querySelector('svg.chart text')).fill")
    assert band.evaluate("one => getComputedStyle(one).fill") != paper
    assert paper != ink
    page.get_by_role("region", name="Owners over time").wait_for()
    screenshot(page, f"group-{theme}", height=1000)


def test_lag_over_time(open_page: OpenPage, screenshot: Screenshot) -> None:
    """Nobody watched while the group fell behind: the chart follows from what it committed."""
    page = open_page(f"/groups/{GROUP}", height=1000)
    records = page.get_by_role("region", name="Unread records over time")
    seconds = page.get_by_role("region", name="Seconds behind over time")
    assert records.locator(".line").count() == 8, "all partitions together, and the seven worst"
    assert seconds.locator(".line").count() == 8
    page.get_by_role("heading", name="Lag over time").evaluate("one => one.scrollIntoView()")
    screenshot(page, "group-lag")


def test_another_period_and_the_list_of_rebalances(open_page: OpenPage) -> None:
    page = open_page(f"/groups/{GROUP}")
    page.get_by_role("navigation", name="Period").get_by_role("link", name="6h").click()
    page.wait_for_url(re.compile("period=6h"))
    assert page.locator("svg.chart a").count() == 21
    page.get_by_text("21 recorded rebalances").click()
    assert page.get_by_role("region", name="Rebalances").get_by_role("row").count() == 22


def test_what_if(open_page: OpenPage, screenshot: Screenshot) -> None:
    page = open_page(f"/groups/{GROUP}")
    page.get_by_role("link", name="What if …").click()
    page.get_by_label("Assignor").select_option("cooperative-sticky")
    page.get_by_label("Members to add").fill("2")
    page.get_by_role("button", name="Plan").click()
    assert "add=2" in page.url
    assert page.get_by_text("cooperative-sticky (now range) would move 2 partitions, 6 kept").is_visible()
    assert (
        page.locator(".command code")
        .inner_text()
        .startswith(f"ottla groups plan {GROUP} --assignor cooperative-sticky --add 2")
    )
    screenshot(page, "what-if")


def test_reset_needs_a_group_without_members_and_shows_a_dry_run(open_page: OpenPage, screenshot: Screenshot) -> None:
    page = open_page(f"/groups/{GROUP}", refused=True)
    page.get_by_role("link", name="Reset offsets").click()
    page.get_by_label("New offset").select_option("shift")
    page.get_by_label("Value").fill("-10")
    page.get_by_role("button", name="Show the dry run").click()
    assert page.get_by_text("This is a dry run: nothing has changed yet.").is_visible()
    assert page.locator("tbody tr").count() == 8
    assert "-10" in page.locator("tbody tr").first.inner_text()
    command = page.locator(".command code").inner_text()
    assert command.startswith(f"ottla groups reset-offsets {GROUP} --all-topics --shift-by=-10 --execute")
    screenshot(page, "reset")
    page.get_by_role("button", name="Reset offsets").click()
    assert "stop its consumers first" in page.get_by_role("alert").inner_text()


def test_a_group_without_members_is_reset_and_deleted(open_page: OpenPage, broker: Broker) -> None:
    with Admin(broker.client_config()) as admin:
        admin.alter_group_offsets("idle", {TopicPartition("orders", 0): 50})
    page = open_page("/groups/idle")
    page.get_by_role("link", name="Reset offsets").click()
    page.get_by_label("New offset").select_option("earliest")
    page.get_by_role("button", name="Show the dry run").click()
    assert page.get_by_text("The group reads 50 records again").is_visible()
    page.get_by_role("button", name="Reset offsets").click()
    assert page.get_by_role("status").get_by_text("Reset the offsets of 1 partition of group idle.").is_visible()
    page.get_by_role("link", name="Delete").click()
    page.get_by_role("button", name="Delete group").click()
    assert page.get_by_text("Deleted group idle.").is_visible()
    assert page.url.endswith("/groups")


def test_the_list_can_be_searched_and_sorted(open_page: OpenPage) -> None:
    page = open_page("/groups")
    page.keyboard.press("/")
    page.keyboard.type("nothing")
    page.keyboard.press("Enter")
    page.get_by_text("No group matches.").wait_for()
    page.goto(page.url.replace("q=nothing", "q=BILL"))
    assert page.get_by_role("link", name=GROUP, exact=True).is_visible()
    page.get_by_role("link", name="Behind").click()
    page.wait_for_url(re.compile("sort=seconds"))
    assert "q=BILL" in page.url


@pytest.mark.parametrize("theme", THEMES)
def test_the_lab_runs_a_scenario(open_page: OpenPage, theme: str, screenshot: Screenshot) -> None:
    page = open_page("/lab", theme=theme)
    page.get_by_label("Scenario").select_option("slow-member")
    page.get_by_label("Members").fill("5")
    page.get_by_role("button", name="Run").click()
    page.get_by_text("Simulating").wait_for(state="detached", timeout=120_000)
    assert page.get_by_role("region", name="Figures").get_by_role("row").count() == 7
    assert page.locator("svg.chart .line").count() == 6
    assert page.locator("tr.best").count() >= 1
    assert page.locator(".command code").inner_text().startswith("ottla lab slow-member --members 5 --seed 1")
    screenshot(page, f"lab-{theme}", height=1100)


@pytest.mark.parametrize("path", ["/groups", f"/groups/{GROUP}", f"/groups/{GROUP}/plan", "/lab"])
def test_a_small_screen_has_one_column(open_page: OpenPage, path: str) -> None:
    page = open_page(path, width=360, height=700)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_member_is_removed(open_page: OpenPage) -> None:
    """Last, because the members of the prepared case do not come back."""
    page = open_page(f"/groups/{GROUP}", refused=True)
    page.get_by_role("link", name="Remove billing-4").click()
    assert page.locator(".command code").inner_text().startswith(f"ottla groups remove-members {GROUP} billing-4-")
    page.get_by_role("button", name="Remove member").click()
    assert page.get_by_text("Removed billing-4").is_visible()
