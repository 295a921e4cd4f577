"""The programs of docs/spark.md run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spark.conftest import Topics

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


def test_the_programs_of_the_page_run(topics: Topics) -> None:
    blocks = re.findall(r"<!-- runs -->\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block.replace("localhost:9092", topics.servers), "block", "exec"), {})
