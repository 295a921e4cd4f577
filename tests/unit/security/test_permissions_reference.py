"""docs/reference/permissions.md is up to date, and its codes exist."""

from __future__ import annotations

import re
from pathlib import Path

from ottla import errors
from ottla.security.reference import render

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "permissions.md"


def test_page_is_up_to_date() -> None:
    assert PAGE.read_text() == render(), "python -m ottla.security.reference > docs/reference/permissions.md"


def test_every_code_on_the_page_is_one_of_kafka() -> None:
    names = {errors.error_name(code) for code in range(200)}
    assert set(re.findall(r"[A-Z_]+_AUTHORIZATION_FAILED", render())) <= names
