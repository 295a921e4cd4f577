"""docs/reference/commands.md is up to date."""

from pathlib import Path

from ottla.cli.reference import render

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "commands.md"


def test_page_is_up_to_date() -> None:
    assert PAGE.read_text() == render(), "python -m ottla.cli.reference > docs/reference/commands.md"


def test_page_has_every_command() -> None:
    page = render()
    for command in ("ottla broker", "ottla topics create", "ottla produce", "ottla consume", "ottla log dump"):
        assert f"\n## {command}\n" in page
