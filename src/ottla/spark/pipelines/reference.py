"""Generate two parts of docs/pipelines.md: all keys, from the dataclasses, and the exit codes. A test compares them.

python -m ottla.spark.pipelines.reference docs/pipelines.md
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

from ottla.spark.pipelines import exit_codes
from ottla.spark.pipelines.checks.values import described
from ottla.spark.pipelines.declaration import (
    SINKS,
    STEPS,
    DeadLetters,
    Declared,
    Events,
    Expect,
    Lineage,
    Pipeline,
    Sink,
    Source,
    Step,
    Table,
)
from ottla.spark.pipelines.toml.form import toml_key

BEGIN, END = "<!-- keys: made by ottla.spark.pipelines.reference -->", "<!-- end of keys -->"
CODES, CODES_END = "<!-- exit codes: made by ottla.spark.pipelines.reference -->", "<!-- end of exit codes -->"
_PARTS: tuple[type[Declared], ...] = (
    Pipeline,
    Source,
    Table,
    Step,
    *dict.fromkeys(STEPS.values()),
    Expect,
    Sink,
    *dict.fromkeys(SINKS.values()),
    DeadLetters,
    Lineage,
    Events,
)
_INHERITED: dict[type[Declared], str] = {Step: "every step", Sink: "every sink"}


def reference() -> str:
    """All tables and their keys as Markdown."""
    return "\n\n".join("\n".join(_part(kind)) for kind in _PARTS) + "\n"


def with_reference(page: str) -> str:
    """Replace the reference and the exit codes between their marks."""
    return _between(_between(page, BEGIN, reference(), END), CODES, exit_codes.as_markdown(), CODES_END)


def _between(page: str, begin: str, text: str, end: str) -> str:
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n\n{text}\n{end}{after}"


def _part(kind: type[Declared]) -> Iterator[str]:
    title = f"{kind.title}: {_INHERITED[kind]}" if kind in _INHERITED else kind.title
    yield f"### {title[0].upper() + title[1:] if kind is Pipeline else title}"
    yield ""
    yield (kind.__doc__ or "").strip() + ("" if kind in _INHERITED else f" Python: `{kind.__name__}`.")
    yield ""
    yield "| key | default | |"
    yield "| --- | --- | --- |"
    hints = typing.get_type_hints(kind)
    inherited = {one.name for base in _INHERITED if kind is not base and issubclass(kind, base) for one in fields(base)}
    for one in fields(kind):
        if one.init and one.name not in inherited:
            yield _row(one, hints[one.name])


def _row(one: Field[Any], hint: Any) -> str:
    name = f"`{toml_key(one)}`" + (f" (`{one.name}`)" if toml_key(one) != one.name else "")
    text = f"{described(hint)}. {one.metadata['doc']}".replace("|", "\\|")
    return f"| {name} | {_default(one)} | {text[0].upper() + text[1:]} |"


def _default(one: Field[Any]) -> str:
    if one.default is MISSING:
        return "required" if one.default_factory is MISSING else ""
    value = one.default
    if value is None or (isinstance(value, Sequence | Mapping) and not value):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        Path(name).write_text(with_reference(Path(name).read_text()))
