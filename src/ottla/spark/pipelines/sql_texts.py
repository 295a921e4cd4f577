"""The SQL in a declaration, and the lines where it is.

Fields with SQL have the metadata `sql`. A text can have several lines, in a TOML string or in a file of its own, and
problems are reported with the line of the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from ottla.spark.pipelines.declaration import Declared, Pipeline, Problem


@dataclass(frozen=True, slots=True)
class SqlText:
    """A query or an expression of a declaration."""

    part: Declared
    key: str
    """The key in TOML: `sql`, `require.0`, `aggregate.total`."""
    text: str
    is_query: bool
    file: Path | None = None
    """The file of the query, with `sql_file`."""

    def problem(self, message: str, line: int | None = None, column: int | None = None) -> Problem:
        """A problem at a line (from 1) and column (from 1) of the text."""
        if self.file is not None:
            return Problem(str(self.file), line, message if column is None else f"position {column}: {message}")
        single = "\n" not in self.text
        place = "" if column is None else f", position {column}" if single else f", line {line} position {column}"
        found = self.part.where.problem(f"{self.key}{place}: {message}", self.key)
        if found.line is None or line is None or single:
            return found
        return Problem(found.file, _line_in_file(found.file, found.line, self.text, line), found.message)


def sql_texts(pipeline: Pipeline, part: Declared) -> Iterator[SqlText]:
    """The SQL of one part. Values of a wrong type are left out: other checks report them."""
    for one in fields(part):
        kind = one.metadata.get("sql")
        if kind is None:
            continue
        key = str(one.metadata.get("key", one.name))
        value: object = getattr(part, one.name)
        if one.metadata.get("file"):
            path = Path(pipeline.path(value)) if isinstance(value, str) else None
            if path is not None and path.is_file():
                yield SqlText(part, key, path.read_text(errors="replace"), kind == "query", path)
        else:
            yield from (SqlText(part, name, text, kind == "query") for name, text in _named(key, value))


def _named(key: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        found = [(f"{key}.{name}", one) for name, one in value.items()]
    elif isinstance(value, list | tuple):
        found = [(f"{key}.{number}", one) for number, one in enumerate(value)]
    else:
        found = [(key, value)]
    yield from ((name, one) for name, one in found if isinstance(one, str) and one.strip())


def _line_in_file(file: str, start: int, text: str, line: int) -> int:
    """The line of the file that has this line of the text, or the last one before it that is not empty.

    It is the start if escapes have changed the text.
    """
    try:
        given = Path(file).read_text().splitlines()
    except OSError:
        return start
    lines = text.splitlines()
    line = max((number for number, one in enumerate(lines[:line], 1) if one.strip()), default=1)
    wanted = lines[line - 1].strip()
    for guess in (start + line, start + line - 1):  # a multi-line string usually starts with a line break
        if wanted and 0 < guess <= len(given) and wanted in given[guess - 1]:
            return guess
    return start
