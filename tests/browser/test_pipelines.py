"""The pages of pipelines and of transactions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from browser.conftest import THEMES, OpenPage, Screenshot
from browser.pipeline_case import prepare
from ottla import Admin, Broker, Consumer, NewTopic, Producer
from ottla.console.server import ConsoleThread
from ottla.console.settings import Settings
from ottla.spark.pipelines.run_lock import run_lock


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(console=True) as broker:
        yield broker


@pytest.fixture(scope="module")
def url(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("pipelines")
    _, pipeline = prepare(directory, broker)
    prepare(directory, broker, "clicks")
    (directory / "payments.toml").write_text('name = "payments"\n')
    arguments = ("--bootstrap-server", broker.bootstrap_servers)
    settings = Settings(config=broker.client_config(), pipelines=(str(directory),), arguments=arguments)
    thread = ConsoleThread(settings)
    with run_lock(pipeline.path(pipeline.checkpoint)):
        yield thread.url
    thread.stop()


@pytest.mark.parametrize("theme", THEMES)
def test_pipelines(open_page: OpenPage, url: str, screenshot: Screenshot, theme: str) -> None:
    page = open_page("/pipelines", url=url, theme=theme)
    assert page.get_by_text("1 problem").is_visible()
    page.get_by_role("link", name="orders", exact=True).click()
    page.get_by_text("running").first.wait_for()
    assert page.locator(".graph svg .box").count() == 7
    assert page.locator(".graph svg .box").first.evaluate("one => getComputedStyle(one).fill") != "none"
    assert page.locator("svg.chart .line").count() >= 4
    # The picture in the docs does not need the temporary directory.
    page.locator(".head .mono").evaluate("one => one.textContent = 'pipelines/orders.toml'")
    screenshot(page, f"pipeline-{theme}", height=1080)
    page.goto(f"{url}/pipelines/payments")
    page.get_by_text("checkpoint is missing").wait_for()


@pytest.mark.parametrize("theme", THEMES)
def test_dead_letters(open_page: OpenPage, url: str, screenshot: Screenshot, theme: str) -> None:
    page = open_page("/pipelines/orders#dead-letters", url=url, theme=theme)
    first = page.locator("details.reason").first
    assert "17" in first.locator(".count").inner_text()
    assert "is not a number" in first.inner_text()
    assert '"total": "a lot"' in first.inner_text()
    assert page.locator("b").count() == 0
    page.locator("#dead-letters").evaluate("one => one.scrollIntoView()")
    screenshot(page, f"dead-letters-{theme}", height=900)
    first.get_by_role("link", name="orders, partition 0, offset").click()
    page.get_by_role("heading", name="Partition 0, offset").wait_for()


def test_dead_letters_are_replayed_after_confirmation(open_page: OpenPage, broker: Broker, url: str) -> None:
    page = open_page("/pipelines/clicks", url=url)
    page.locator("details.reason").first.get_by_role("link", name="Replay those with this reason").click()
    page.get_by_role("button", name="Continue").click()
    page.get_by_text("17 dead letters will be sent back").wait_for()
    page.get_by_text("6 dead letters will stay: other error").wait_for()
    assert "ottla pipeline replay" in page.locator(".command code").inner_text()
    page.set_default_timeout(60_000)
    page.get_by_role("button", name="Replay").click()
    page.get_by_text("replay of clicks is done").wait_for()
    page.get_by_text("6 dead letters wait").wait_for()
    with Consumer({**broker.client_config(), "auto.offset.reset": "earliest", "group.id": "replayed"}) as consumer:
        consumer.subscribe(["orders"])
        replayed: list[object] = []
        while len(replayed) < 17:
            replayed += [one for one in consumer.poll(5) if any(name == "ottla-replays" for name, _ in one.headers)]


@pytest.mark.parametrize("theme", THEMES)
def test_an_audit_runs_in_a_process_of_its_own(open_page: OpenPage, url: str, theme: str) -> None:
    page = open_page("/pipelines/clicks", url=url, theme=theme)
    page.get_by_role("link", name="Audit again").click()
    page.get_by_text("It reads all of them and changes nothing.").wait_for()
    assert "ottla pipeline audit" in page.locator(".command code").inner_text()
    if theme == "dark":
        page.get_by_role("link", name="Cancel").click()
        page.get_by_role("heading", name="clicks").wait_for()
        return
    page.get_by_role("button", name="Run the audit").click()
    page.locator("details.job summary", has_text="audit of clicks").wait_for()


def test_small_screens(open_page: OpenPage, url: str) -> None:
    for path in ("/pipelines", "/pipelines/orders", "/transactions"):
        page = open_page(path, url=url, width=360, height=700)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path


@pytest.mark.parametrize("theme", THEMES)
def test_transactions(open_page: OpenPage, broker: Broker, url: str, screenshot: Screenshot, theme: str) -> None:
    topic = f"payments-{theme}"
    with Admin(broker.client_config()) as admin:
        admin.create_topics([NewTopic(topic, 2)])
    with Producer({**broker.client_config(), "transactional.id": f"billing-{theme}"}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"a", partition=0)
        producer.commit_transaction()
        producer.begin_transaction()
        for number in range(30):
            producer.send(topic, b"b", partition=number % 2)
        producer.flush()
        page = open_page("/transactions", url=url, theme=theme)
        page.get_by_role("link", name=f"{topic}-0").wait_for()
        page.locator("td .status", has_text="Ongoing").first.wait_for()
        screenshot(page, f"transactions-{theme}", height=700)
        page.get_by_role("row", name=f"{topic}-1").get_by_role("link", name="Abort").click()
        page.get_by_text("Its coordinator knows it").wait_for()
        page.get_by_role("button", name="Abort it").click()
        page.get_by_text("Aborted the transaction of producer").wait_for()
        page.get_by_role("link", name=f"{topic}-1").wait_for(state="detached")
        producer.abort_transaction()
