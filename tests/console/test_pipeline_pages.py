"""The pages of pipelines over HTTP; nothing of it imports Spark."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import unquote

import httpx
import pytest

from browser.pipeline_case import prepare
from console.conftest import Start
from console.forms import confirm
from ottla import Broker
from ottla.spark.pipelines.run_lock import run_lock


@pytest.fixture(scope="module")
def pipelines(start: Start, broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> tuple[httpx.Client, Path]:
    directory = tmp_path_factory.mktemp("pipelines")
    prepare(directory, broker, "orders")
    (directory / "broken.toml").write_text('name = "broken"\n')
    return start(pipelines=(str(directory),)), directory


def test_pages_of_pipelines(pipelines: tuple[httpx.Client, Path], console: httpx.Client) -> None:
    assert "ottla console --pipelines orders.toml" in console.get("/pipelines").text
    client, directory = pipelines
    with run_lock(str(directory / "state" / "orders")):
        page = client.get("/pipelines").text
        assert "● running" in page
        assert "1 problem" in page
        text = client.get("/pipelines/orders").text
        for told in (
            "Rows per second",
            "Batch times",
            "positive",
            "total: … is not a number",
            "23 dead letters wait",
            "48 records: 41 arrived",
        ):
            assert told in text, told
        assert "<b>eve</b>" not in text
        assert "<style>" not in text
    assert "checkpoint is missing" in client.get("/pipelines/broken").text
    assert client.get("/pipelines/nobody").status_code == 404
    assert client.get("/pipelines/orders/graph.svg").headers["content-type"] == "image/svg+xml"


def test_a_pipeline_may_have_any_name(pipelines: tuple[httpx.Client, Path]) -> None:
    client, directory = pipelines
    path = directory / "заказы.toml"
    path.write_text((directory / "orders.toml").read_text())
    try:
        assert client.get("/pipelines/заказы").status_code == 200
        picture = client.get("/pipelines/заказы/graph.svg")
        assert picture.status_code == 200
        assert unquote(picture.headers["content-disposition"]).endswith("''заказы.svg")
    finally:
        path.unlink()


def test_pipelines_whose_brokers_do_not_answer_do_not_hold_up_pages(
    pipelines: tuple[httpx.Client, Path], start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.console.pages.pipelines.PATIENCE", 0.2)
    shutil.copytree(pipelines[1], tmp_path, dirs_exist_ok=True)
    text = (tmp_path / "orders.toml").read_text()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for number in range(40):
            servers = f"127.0.0.1:{silent.getsockname()[1]}"
            (tmp_path / f"p{number}.toml").write_text(f'bootstrap_servers = "{servers}"\n{text}')
        page = start(pipelines=(str(tmp_path),)).get("/pipelines", timeout=8)
    assert page.status_code == 200
    assert 'href="/pipelines/p39"' in page.text


def test_an_audit_of_nothing_is_not_good(pipelines: tuple[httpx.Client, Path]) -> None:
    client, directory = pipelines
    report = {"ok": True, "audits": [], "not_audited": {"table": "it never ran"}}
    stored = {"at": 1, "report": report, "text": "sink table was not audited"}
    path = directory / "state" / "orders" / "audit.json"
    before = path.read_text()
    path.write_text(json.dumps(stored))
    try:
        deadline = time.monotonic() + 10
        while "No sink could be audited" not in (page := client.get("/pipelines/orders").text):
            assert time.monotonic() < deadline, page
            time.sleep(0.1)
        assert "Nothing lost or repeated" not in page
    finally:
        path.write_text(before)


def test_dead_letters_are_replayed(pipelines: tuple[httpx.Client, Path], start: Start) -> None:
    client, directory = pipelines
    values = {"error": "is not a number", "from_topic": "", "limit": "", "max_replays": "3"}
    plan = client.get("/pipelines/orders/replay", params=values).text
    assert "17 dead letters will be sent back to their original topics." in plan
    assert f"ottla pipeline replay {directory}/orders.toml --error &#39;is not a number&#39; --bootstrap-server" in plan
    done = confirm(client, "/pipelines/orders/replay", **values)
    assert done.status_code == 303
    deadline = time.monotonic() + 20
    while "replay of orders is done" not in (page := client.get("/pipelines/orders").text):
        assert time.monotonic() < deadline, page
        time.sleep(0.2)
    while "6 dead letters wait" not in client.get("/pipelines/orders").text:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    wrong = client.get("/pipelines/orders/replay", params={**values, "limit": "x"})
    assert wrong.status_code == 400
    reader = start(read_only=True, pipelines=(str(directory),))
    assert confirm(reader, "/pipelines/orders/audit").status_code == 403


STARTED = """
import sys, ottla, urllib.request
from ottla.console.server import ConsoleThread
from ottla.console.settings import Settings

thread = ConsoleThread(Settings(config={"bootstrap.servers": "127.0.0.1:1", "default.api.timeout.ms": 300}))
urllib.request.urlopen(thread.url).read()
thread.stop()
print(*(name for name in ("pyspark", "ottla.spark", "ottla.lab", "ottla.broker.handlers") if name in sys.modules))
"""


def test_the_console_starts_without_what_few_pages_need() -> None:
    done = subprocess.run([sys.executable, "-c", STARTED], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
