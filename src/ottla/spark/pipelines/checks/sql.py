"""Check the syntax of SQL before a session starts.

Two parsers share the work. sqlglot is quick, but rejects some SQL that Spark accepts, such as GROUP BY window(…). So
what it rejects is parsed again by Spark's own parser, in a Java process, and only that one decides. What sqlglot
accepts is not checked further: Spark finds the rest when the pipeline is compiled.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from ottla.spark.pipelines.declaration import Declared, Pipeline, Problem, Sql
from ottla.spark.pipelines.spark_parser import SparkParser
from ottla.spark.pipelines.sql_errors import read_error
from ottla.spark.pipelines.sql_texts import SqlText, sql_texts

_START = re.compile(r"(?:\s|\(|--[^\n]*(?:\n|$)|/\*.*?\*/)*(\w*)", re.DOTALL)
_QUERIES = ("select", "with", "from", "values", "table", "map", "reduce")


def statement_problems(pipeline: Pipeline, step: Sql) -> Iterator[Problem]:
    """A SQL step must be a query: Spark would run any other statement when it compiles the pipeline."""
    for one in sql_texts(pipeline, step):
        found = _START.match(one.text)
        word = found[1] if found else ""
        if word.lower() not in _QUERIES:
            what = f"not with {word.upper()}" if word else "but it is empty"
            yield one.problem(f"a SQL step must be a query that begins with SELECT, WITH, FROM or VALUES, {what}")


def syntax_problems(pipeline: Pipeline, parts: Iterable[Declared]) -> list[Problem]:
    """Syntax errors; raises NoParser if the verdict of Spark's parser is needed and Java or PySpark is missing."""
    doubtful = [one for part in parts for one in sql_texts(pipeline, part) if not is_plain(one)]
    if not doubtful:
        return []
    with SparkParser() as parser:
        errors = [(one, parser.error(one.text, is_query=one.is_query)) for one in doubtful]
    return [_problem(one, error) for one, error in errors if error is not None]


def _problem(one: SqlText, text: str) -> Problem:
    error = read_error(text)
    return one.problem(error.message, error.line, error.column)


def is_plain(one: SqlText) -> bool:
    """Whether sqlglot understands the text; False means doubt, not an error."""
    try:
        import sqlglot
        from sqlglot import expressions
    except ImportError:
        return False
    text = one.text if one.is_query else f"SELECT {one.text}"
    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    try:
        if _is_odd([token.text for token in sqlglot.tokenize(text, dialect="spark")]):
            return False
        found = [tree for tree in sqlglot.parse(text, dialect="spark") if tree is not None]
    except Exception:  # it raises several kinds, also by mistake
        return False
    if len(found) != 1 or not isinstance(found[0], expressions.Query):
        return False
    if one.is_query:
        return True
    tree = found[0]
    return len(tree.expressions) == 1 and {name for name, value in tree.args.items() if value} <= {"expressions"}


def _is_odd(words: Sequence[str]) -> bool:
    """Whether brackets do not match or an argument is missing, which sqlglot often accepts."""
    pairs = pairwise(words)
    unmatched = words.count("(") != words.count(")")
    return unmatched or any(
        one in ("(", ",") and other in (",", ")", "FROM") and one + other != "()" for one, other in pairs
    )
