"""Check that the function of a Python step exists, without importing its module."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

from ottla.spark.pipelines.declaration import Pipeline, Problem, Python
from ottla.suggestions import did_you_mean

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def function_problems(pipeline: Pipeline, step: Python) -> Iterator[Problem]:
    """Problems with `module:function`."""
    if not _FUNCTION.fullmatch(step.python):
        yield step.where.problem(f"python must have the form module:function, not {step.python!r}", "python")
        return
    module, _, function = step.python.partition(":")
    file = pipeline.directory / (module.replace(".", "/") + ".py")
    if not file.is_file():
        if importlib.util.find_spec(module.split(".")[0]) is None:
            yield step.where.problem(f"module {module} not found: neither {file} nor an installed module", "python")
        return
    try:
        names = _names_of(file)
    except SyntaxError as error:
        yield Problem(str(file), error.lineno, f"invalid Python: {error.msg}")
        return
    if names is not None and function not in names:
        near = did_you_mean(function, names)
        yield step.where.problem(f"{file} does not define {function}.{near}", "python")


def _names_of(file: Path) -> set[str] | None:
    """The names that a module defines; None if it has a star import."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(), str(file))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            if any(one.name == "*" for one in node.names):
                return None
            names |= {(one.asname or one.name).split(".")[0] for one in node.names}
    return names
