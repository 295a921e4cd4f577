"""The recipes in examples/cookbook are valid, have tests, and are what docs/cookbook.md shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ottla.spark.pipelines.checks.pipeline import check
from ottla.spark.pipelines.checks.sql import is_plain
from ottla.spark.pipelines.sql_texts import sql_texts
from ottla.testing.pipelines.cases import case_files
from ottla.testing.pipelines.suites import load_case

ROOT = Path(__file__).parents[4]
COOKBOOK = ROOT / "examples" / "cookbook"
PAGE = (ROOT / "docs" / "cookbook.md").read_text()
RECIPES = sorted(COOKBOOK.glob("*/*.toml"))
QUOTED = re.findall(r"<!-- from: (\S+) -->\n```toml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.parent.name)
def test_a_recipe_is_valid(recipe: Path) -> None:
    for case in case_files(recipe):
        loaded = load_case(recipe, case)
        pipeline = loaded.pipeline
        assert check(pipeline) == [] or any(source.registry for source in pipeline.sources)
        parts = (*pipeline.sources, *pipeline.steps, *pipeline.expects, *pipeline.sinks)
        assert [one.text for part in parts for one in sql_texts(pipeline, part) if not is_plain(one)] == []
    assert f"`examples/cookbook/{recipe.parent.name}`" in PAGE


@pytest.mark.parametrize(("file", "text"), QUOTED, ids=[file for file, _ in QUOTED])
def test_the_page_shows_the_files(file: str, text: str) -> None:
    assert text in (COOKBOOK / file).read_text()
