"""Load and check a pipeline from a TOML file, or from a Python file that defines `pipeline`."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path

from ottla.spark.pipelines import declaration
from ottla.spark.pipelines.checks.pipeline import check
from ottla.spark.pipelines.declaration import DeclarationError, Declared, Pipeline, Problem
from ottla.spark.pipelines.toml.form import keys_of, read_toml
from ottla.suggestions import did_you_mean


def load(
    path: str | Path,
    *,
    bootstrap_servers: str | None = None,
    default_servers: str | None = None,
    kafka: Mapping[str, str] | None = None,
) -> Pipeline:
    """Load a pipeline from a .toml file, or from a .py file that defines `pipeline`.

    Raises `DeclarationError` with all problems, each with file and line. `bootstrap_servers` overrides the pipeline's
    setting in the file, `default_servers` applies if there is none, and `kafka` adds client configs.
    """
    pipeline, problems = read(path)
    if pipeline is not None:
        servers = bootstrap_servers or pipeline.bootstrap_servers or default_servers
        object.__setattr__(pipeline, "bootstrap_servers", servers)
        if kafka and isinstance(pipeline.kafka, Mapping):
            object.__setattr__(pipeline, "kafka", {**pipeline.kafka, **kafka})
        problems = [*problems, *check(pipeline)]
    if problems or pipeline is None:
        raise DeclarationError(list(dict.fromkeys(problems)))
    return pipeline


def read(path: str | Path, environment: Mapping[str, str] = os.environ) -> tuple[Pipeline | None, list[Problem]]:
    """Read a pipeline without checking it; returns the problems with its keys, too."""
    path = Path(path)
    if not path.is_file():
        what = "this is a directory: give the file of a pipeline" if path.is_dir() else "file not found"
        return None, [Problem(str(path), None, what)]
    if path.suffix not in (".toml", ".py"):
        return None, [Problem(str(path), None, "not a pipeline: use a .toml or .py file")]
    return read_toml(path, environment) if path.suffix == ".toml" else _read_python(path)


def _read_python(path: Path) -> tuple[Pipeline | None, list[Problem]]:
    names: dict[str, object] = {"__name__": path.stem, "__file__": str(path)}
    directory = str(path.resolve().parent)
    sys.path.insert(0, directory)
    try:
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), names)
    except SyntaxError as error:
        return None, [Problem(str(path), error.lineno, f"invalid Python: {error.msg}")]
    except Exception as error:
        return None, [_failure(path, error)]
    finally:
        sys.path.remove(directory)
    found = names.get("pipeline")
    if not isinstance(found, Pipeline):
        what = f"it is a {type(found).__name__}" if "pipeline" in names else "it is missing"
        return None, [Problem(str(path), None, f"the file must define pipeline = Pipeline(…): {what}")]
    object.__setattr__(found, "directory", path.resolve().parent)
    return found, []


def _failure(path: Path, error: Exception) -> Problem:
    """The exception at its deepest line in the file; a wrong keyword reads like an unknown TOML key."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    line = lines[-1] if lines else None
    text = str(error)
    unknown = re.match(r"(\w+)\.__init__\(\) got an unexpected keyword argument '(\w+)'", text)
    missing = re.match(r"(\w+)\.__init__\(\) missing \d+ required keyword-only arguments?: (.*)", text)
    kind = getattr(declaration, (unknown or missing or ["", ""])[1], None)
    if isinstance(kind, type) and issubclass(kind, Declared):
        if unknown:
            names = list(keys_of(kind).values())
            near = did_you_mean(unknown[2], names) or f" The keys are {', '.join(names)}."
            return Problem(str(path), line, f"{unknown[1]} has no {unknown[2]}.{near}")
        if missing:
            return Problem(str(path), line, f"{missing[1]} requires {missing[2].replace(chr(39), '')}")
    return Problem(str(path), line, f"{type(error).__name__}: {text}")
