"""docs/pipelines.md has a current reference, and all examples pass the checks."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from ottla.cli.pipeline.run import EPILOG
from ottla.spark.pipelines import Pipeline, exit_codes, load
from ottla.spark.pipelines.reference import with_reference

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "pipelines.md"
EXAMPLES = ROOT / "examples" / "pipelines"


def test_the_reference_is_current() -> None:
    page = PAGE.read_text()
    assert with_reference(page) == page, "run: python -m ottla.spark.pipelines.reference docs/pipelines.md"


def test_help_and_page_have_all_exit_codes() -> None:
    page = " ".join(PAGE.read_text().split())
    told = " ".join(EPILOG.split())
    assert len({one.code for one in exit_codes.TABLE}) == len(exit_codes.TABLE)
    for one in exit_codes.TABLE:
        assert f"{one.code} {one.meaning}" in told
        assert f"| {one.code} | {one.meaning[0].upper()}{one.meaning[1:]}. |" in page


def test_the_example_of_the_page(tmp_path: Path) -> None:
    text, *_ = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "orders.toml").write_text(text)
    assert load(tmp_path / "orders.toml").name == tomllib.loads(text)["name"]


def test_the_database_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", "secret")
    text, *parts = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (part,) = [one for one in parts if "jdbc:" in one]
    (tmp_path / "orders.toml").write_text(text + part)
    assert [sink.name for sink in load(tmp_path / "orders.toml").sinks] == ["table", "large", "orders"]


def test_the_change_data_of_the_page(tmp_path: Path) -> None:
    _, *parts = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    changes, debezium = (one for one in parts if "latest" in one)
    head = 'name = "customers"\ncheckpoint = "state"\nbootstrap_servers = "localhost:9092"\n'
    sink = changes.partition("[[sink]]")[2]
    for text in (changes, f"{debezium}\n[[sink]]{sink}"):
        (tmp_path / "customers.toml").write_text(head + text)
        assert [step.name for step in load(tmp_path / "customers.toml").steps] == ["customers"]


@pytest.mark.parametrize("name", ["orders.toml", "clicks.toml", "trades.py"])
def test_examples(name: str) -> None:
    found = load(EXAMPLES / name)
    assert isinstance(found, Pipeline)
    assert found.name == Path(name).stem


def test_every_example_is_checked() -> None:
    files = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".toml", ".py")}
    assert files == {"orders.toml", "clicks.toml", "trades.py", "tidying.py"}
