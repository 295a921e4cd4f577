"""Say in one sentence what Spark found wrong in SQL, and in which line of the declaration.

    orders.toml:22: sql, position 8: column totl does not exist. Did you mean total? orders has id, total, at

Spark provides text: a condition in brackets, a sentence, a position, and then the plan of the query.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.spark.pipelines.checks.modes import input_of
from ottla.spark.pipelines.declaration import (
    ORIGIN,
    Declared,
    Expect,
    Join,
    Pipeline,
    Problem,
    Sink,
    Source,
    Sql,
    Step,
)
from ottla.spark.pipelines.sql_texts import SqlText, sql_texts
from ottla.suggestions import did_you_mean

LONGEST = 600
_POSITION = re.compile(r"(?:; |\()line (?P<line>\d+),? pos (?P<position>\d+)\)?")
_CONDITION = re.compile(r"\[(?P<name>[A-Z][A-Z0-9_.]+)\] ?(?P<message>.*)", re.DOTALL)
_END = re.compile(r"\n\n|\n==|;\n|\n'|\n\+-|; line \d+ pos| ?SQLSTATE: \w{5}|\n\nJVM stacktrace")
_COLUMN = re.compile(r"with name (?P<name>`.+?`) cannot be resolved", re.DOTALL)
_ROUTINE = re.compile(r"Cannot resolve routine (?P<name>`.+?`) on")
_VIEW = re.compile(r"The table or view (?P<name>`.+?`) cannot be found")
_BACKTICKS = re.compile(r"`((?:[^`]|``)+)`")

Columns = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class SqlError:
    """What is wrong; `name` is an unknown name, and `line` and `column` count from 1."""

    message: str
    name: str | None = None
    line: int | None = None
    column: int | None = None


def read_error(text: str, inputs: Columns | None = None, names: Sequence[str] = ()) -> SqlError:
    """Read Spark's message. `inputs` has the columns of each input, `names` all sources, tables and steps.

    >>> read_error("[PARSE_SYNTAX_ERROR] Syntax error at or near 'x'. SQLSTATE: 42601 (line 1, pos 9)\\n\\n== SQL ==")
    SqlError(message="Syntax error at or near 'x'", name=None, line=1, column=10)
    """
    place = _POSITION.search(text)
    line, column = (int(place["line"]), int(place["position"]) + 1) if place else (None, None)
    found = _CONDITION.search(text)
    condition, message = (found["name"], found["message"]) if found else ("", text)
    message = _END.split(message.strip(), maxsplit=1)[0].strip()
    name = None
    if condition.startswith("UNRESOLVED_COLUMN") and (match := _COLUMN.search(message)):
        name = _plain(match["name"])
        message = f"column {name} does not exist"
    elif condition == "UNRESOLVED_ROUTINE" and (match := _ROUTINE.search(message)):
        name = _plain(match["name"]).rpartition(".")[2]
        message = f"function {name} does not exist.{did_you_mean(name, _functions())}"
    elif condition == "TABLE_OR_VIEW_NOT_FOUND" and (match := _VIEW.search(message)):
        name = _plain(match["name"])
        near = did_you_mean(name, names) or f" There are {', '.join(names)}."
        message = f"source, table or step {name} does not exist.{near}"
    message = " ".join(message.split())
    if condition.startswith("UNRESOLVED_COLUMN") and name is not None:
        message += _known(name, inputs or {})
    shown = message if len(message) <= LONGEST else f"{message[: LONGEST - 1]}…"
    return SqlError(shown.removesuffix("."), name, line, column)


def problem_of(pipeline: Pipeline, part: Declared, error: Any, columns: Columns) -> Problem:
    """The problem that an exception of Spark describes. `columns` has the columns of all known views."""
    found = read_error(str(error), inputs_of(pipeline, part, columns), list(columns))
    text = _place(list(sql_texts(pipeline, part)), found)
    if text is None:
        return part.where.problem(f"{getattr(part, 'name', part.title)}: {found.message}")
    return text.problem(found.message, found.line, found.column)


def inputs_of(pipeline: Pipeline, part: Declared, columns: Columns) -> dict[str, Sequence[str]]:
    """The columns of the inputs of a part; for SQL, of the names that occur in the query."""
    if isinstance(part, Sql):
        words = {word for one in sql_texts(pipeline, part) for word in re.findall(r"\w+", one.text.lower())}
        return {name: found for name, found in columns.items() if name.lower() in words}
    wanted = [part.name] if isinstance(part, Source) else []
    if isinstance(part, Step | Sink | Expect):
        wanted = [input_of(pipeline, part) or "", part.join if isinstance(part, Join) else ""]
    return {name: columns[name] for name in wanted if name in columns}


def _place(texts: Sequence[SqlText], error: SqlError) -> SqlText | None:
    """The text with the error: the only one, or the first one with the unknown name."""
    if len(texts) <= 1 or error.name is None:
        return texts[0] if texts else None
    last = error.name.rpartition(".")[2].lower()
    return next((one for one in texts if last in one.text.lower()), texts[0])


def _known(name: str, inputs: Columns) -> str:
    every = [column for columns in inputs.values() for column in columns]
    near = did_you_mean(name.rpartition(".")[2], every)
    shown = [
        f"{view} has {', '.join([column for column in columns if column not in ORIGIN] or columns)}"
        for view, columns in inputs.items()
    ]
    listed = f" {'; '.join(shown)}." if shown else ""
    return f".{near}{listed}" if near or listed else ""


def _plain(name: str) -> str:
    """
    >>> _plain("`o`.`total`")
    'o.total'
    """
    return ".".join(one.replace("``", "`") for one in _BACKTICKS.findall(name)) or name


def _functions() -> list[str]:
    from pyspark.sql import functions

    return [name for name in dir(functions) if name.islower()]
