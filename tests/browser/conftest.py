"""The console in a real browser: Debian's Chromium, driven by playwright.

    def test_topics(open_page: OpenPage, broker: Broker, screenshot: Screenshot) -> None:
        page = open_page("/topics", theme="dark")
        assert page.get_by_role("heading", name="Topics").is_visible()
        screenshot(page, "topics")

A test fails if the browser reports an error, such as a violation of the content security policy. Screenshots are
written to the directory in OTTLA_SCREENSHOTS (`make screenshots`: docs/images), and otherwise thrown away.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from ottla import Broker

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
LARGEST_IMAGE = 150_000
THEMES = ("light", "dark")


class OpenPage(Protocol):
    def __call__(
        self,
        path: str,
        *,
        theme: str = "light",
        width: int = 1200,
        height: int = 800,
        url: str | None = None,
        refused: bool = False,
        busy: bool = False,
    ) -> playwright.Page: ...


class Screenshot(Protocol):
    def __call__(self, page: playwright.Page, name: str, *, height: int | None = None) -> None: ...


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser() -> Iterator[playwright.Browser]:
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("needs Chromium: apt install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker with a console, shared by the tests of a file. They use topics and groups of their own."""
    with Broker(console=True) as broker:
        yield broker


@pytest.fixture
def open_page(browser: playwright.Browser, broker: Broker) -> Iterator[OpenPage]:
    """Opens pages of the console of `broker` (or of `url`); errors that the browser reports fail the test.

    With `refused`, pages may refuse something (4xx); with `busy`, they may have no place (503).
    """
    errors: list[str] = []
    contexts: list[playwright.BrowserContext] = []

    def failed(message: playwright.ConsoleMessage, refused: bool, busy: bool) -> None:
        text, where = message.text, message.location["url"]
        allowed = (refused and "responded with a status of 4" in text) or (busy and "a status of 503" in text)
        if not allowed:
            errors.append(f"{text} {where}")

    def opens(
        path: str,
        *,
        theme: str = "light",
        width: int = 1200,
        height: int = 800,
        url: str | None = None,
        refused: bool = False,
        busy: bool = False,
    ) -> playwright.Page:
        context = browser.new_context(color_scheme=theme, viewport={"width": width, "height": height})
        context.set_default_timeout(15_000)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: message.type == "error" and failed(message, refused, busy))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("dialog", lambda dialog: (errors.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.goto((url or broker.console_url) + path)
        return page

    yield opens
    for context in contexts:
        context.close()
    assert not errors, errors


@pytest.fixture
def screenshot(tmp_path: Path) -> Screenshot:
    """Takes the pictures of the docs: ``screenshot(page, "topics")`` is console-topics.png."""
    directory = Path(os.environ.get("OTTLA_SCREENSHOTS") or tmp_path)
    directory.mkdir(parents=True, exist_ok=True)

    def takes(page: playwright.Page, name: str, *, height: int | None = None) -> None:
        size = page.viewport_size
        assert size is not None
        if height is not None:
            page.set_viewport_size({"width": size["width"], "height": height})
        page.mouse.move(0, 0)
        path = directory / f"console-{name}.png"
        page.screenshot(path=path, animations="disabled", caret="hide")
        assert path.stat().st_size < LARGEST_IMAGE, f"{path.name} is too large: show less"
        page.set_viewport_size(size)

    return takes
