"""Whether the function of a step is there, without running its module."""

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
    """What is wrong with `module:function`."""
    if not _FUNCTION.fullmatch(step.python):
        yield step.problem(f"python is module:function, not {step.python!r}", "python")
        return
    module, _, function = step.python.partition(":")
    file = pipeline.directory / (module.replace(".", "/") + ".py")
    if not file.is_file():
        if importlib.util.find_spec(module.split(".")[0]) is None:
            yield step.problem(f"there is no module {module}: neither {file} nor an installed one", "python")
        return
    try:
        names = _names_of(file)
    except SyntaxError as error:
        yield Problem(str(file), error.lineno, f"this is no Python: {error.msg}")
        return
    if names is not None and function not in names:
        near = did_you_mean(function, names)
        yield step.problem(f"{file} defines no {function}.{near}", "python")


def _names_of(file: Path) -> set[str] | None:
    """What a module defines, or None if that cannot be seen from outside."""
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
