"""Read a pipeline from TOML: map tables to classes and keys to fields, with their lines.

Values are not checked here; `check` does that for pipelines from TOML and from Python.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, TypeVar

from ottla.spark.pipelines.declaration import (
    SINKS,
    STEPS,
    DeadLetters,
    Declared,
    Events,
    Expect,
    Lineage,
    Pipeline,
    Problem,
    Sink,
    Source,
    Step,
    Table,
    Where,
)
from ottla.spark.pipelines.toml.lines import Path as KeyPath
from ottla.spark.pipelines.toml.lines import locate
from ottla.suggestions import did_you_mean

_Part = TypeVar("_Part", bound=Declared)
_VARIABLE = re.compile(r"\$(\$)?\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
#: Tables that a file has once, and a key of them.
_TABLES: dict[str, tuple[type[Declared], str]] = {
    "dead_letters": (DeadLetters, "topic"),
    "lineage": (Lineage, "transport"),
    "events": (Events, "webhook"),
}
_AT_LINE = re.compile(r" \(at line (\d+), column (\d+)\)$")
_PLACE = re.compile(r" \(at [^()]*\)$")


def read_toml(path: Path, environment: Mapping[str, str] = os.environ) -> tuple[Pipeline | None, list[Problem]]:
    """The pipeline, as far as it could be read, and the problems with its keys."""
    try:
        text = path.read_text(encoding="utf-8")
        data = tomllib.loads(text)
    except UnicodeDecodeError as error:
        return None, [Problem(str(path), None, f"invalid TOML: not UTF-8 text ({error.reason})")]
    except tomllib.TOMLDecodeError as error:
        found = _AT_LINE.search(str(error))
        line = int(found[1]) if found else text.rstrip().count("\n") + 1
        what = _PLACE.sub("", str(error))
        hint = ' (text needs quotes: name = "orders")' if what == "Invalid value" else ""
        return None, [Problem(str(path), line, f"invalid TOML: {what}{hint}")]
    return _Reader(str(path), locate(text), environment).pipeline(data)


def toml_key(one: Field[Any]) -> str:
    return str(one.metadata.get("key", one.name))


def keys_of(kind: type[Any]) -> dict[str, str]:
    """The keys of a table, with the names of their fields."""
    return {toml_key(one): one.name for one in fields(kind) if one.init}


class _Reader:
    def __init__(self, file: str, lines: Mapping[KeyPath, int], environment: Mapping[str, str]) -> None:
        self._file = file
        self._lines = lines
        self._environment = environment
        self._problems: list[Problem] = []

    def pipeline(self, data: dict[str, Any]) -> tuple[Pipeline, list[Problem]]:
        data = self._substituted(data, ())
        kinds: dict[str, Callable[[dict[str, Any], KeyPath], Any]] = {
            "source": lambda one, path: self._part(Source, one, path),
            "table": lambda one, path: self._part(Table, one, path),
            "step": self._step,
            "expect": lambda one, path: self._part(Expect, one, path),
            "sink": self._sink,
        }
        parts: dict[str, Any] = {name: self._array(name, data.pop(name, []), kind) for name, kind in kinds.items()}
        for name, (single, example) in _TABLES.items():
            given = data.pop(name, None)
            if isinstance(given, dict):
                parts[name] = self._part(single, given, (name,))
            elif given is not None:
                self._report((name,), f"{name} is a table: write [{name}] and {example} = … below it")
        found = self._part(Pipeline, data, (), parts)
        object.__setattr__(found, "directory", Path(self._file).resolve().parent)
        return found, self._problems

    def _array(self, name: str, given: Any, make: Callable[[dict[str, Any], KeyPath], Any]) -> list[Any]:
        if isinstance(given, dict):
            self._report((name,), f"{name} is an array of tables: write [[{name}]] instead of [{name}]")
            given = [given]
        if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
            self._report((name,), f"{name} is an array of tables: write [[{name}]] and its keys below it")
            return []
        return [make(one, (name, number)) for number, one in enumerate(given)]

    def _step(self, given: dict[str, Any], path: KeyPath) -> Step:
        kinds = {STEPS[key] for key in given if key in STEPS}
        if len(kinds) == 1:
            return self._part(kinds.pop(), given, path)
        words = "sql, sql_file, python, dedupe, window, session, join and latest"
        if kinds:
            self._report(path, f"a step can have only one of {words}: split it into several steps")
        else:
            odd = [key for key in given if key not in keys_of(Step)]
            near = next((hint for key in odd if (hint := did_you_mean(key, STEPS))), "")
            self._report(path, f"the step has no action: add one of {words}.{near}")
        return self._part(Step, {key: given[key] for key in keys_of(Step) if key in given}, path)

    def _sink(self, given: dict[str, Any], path: KeyPath) -> Sink:
        kind = given.get("format")
        if isinstance(kind, str) and kind in SINKS:
            made = SINKS[kind]
            # Some classes have several formats, and a field for it.
            rest = {key: value for key, value in given.items() if key != "format" or key in keys_of(made)}
            return self._part(made, rest, path)
        names = ", ".join(SINKS)
        if kind is None:
            self._report(path, f"format is missing: use one of {names}")
        else:
            near = did_you_mean(kind, SINKS) if isinstance(kind, str) else ""
            self._report((*path, "format"), f"format must be one of {names}, not {kind!r}.{near}")
        return self._part(Sink, {key: given[key] for key in keys_of(Sink) if key in given}, path)

    def _part(
        self, kind: type[_Part], given: dict[str, Any], path: KeyPath, parts: Mapping[str, Any] | None = None
    ) -> _Part:
        """Build one part; missing required keys become None, which `check` reports."""
        parts = parts or {}
        keys = keys_of(kind)
        for key in given:
            if key not in keys:
                self._unknown(kind, key, path)
        values = {keys[key]: value for key, value in {**given, **parts}.items() if key in keys}
        for one in fields(kind):
            if one.name in values and "Mapping[str, str]" in str(one.type):
                values[one.name] = _flat(values[one.name])
            if one.init and one.name not in values and toml_key(one) not in parts and _required(one):
                values[one.name] = None
        found = kind(**values)
        object.__setattr__(found, "where", self._where(path))
        return found

    def _unknown(self, kind: type[Any], key: str, path: KeyPath) -> None:
        others = [other for other in (*dict.fromkeys(STEPS.values()), *dict.fromkeys(SINKS.values())) if other != kind]
        family = Step if issubclass(kind, Step) else Sink if issubclass(kind, Sink) else None
        near = did_you_mean(key, keys_of(kind))
        owner = next((one for one in others if family and issubclass(one, family) and key in keys_of(one)), None)
        if owner is not None and not near:
            near = f" It is a key of {owner.title}."
        names = ", ".join(keys_of(kind))
        title = kind.title if kind is not Pipeline else "a pipeline"
        self._report((*path, key), f"{title} has no key {key}.{near or f' The keys are {names}.'}")

    def _where(self, path: KeyPath) -> Where:
        size = len(path)
        keys = {
            ".".join(map(str, one[size:])): line
            for one, line in self._lines.items()
            if one[:size] == path and len(one) > size
        }
        return Where(self._file, self._lines.get(path, 1 if not path else None), keys)

    def _substituted(self, value: Any, path: KeyPath) -> Any:
        """Replace `${NAME}` and `${NAME:-default}` from the environment; `$${` is an escaped `${`."""
        if isinstance(value, dict):
            return {key: self._substituted(one, (*path, key)) for key, one in value.items()}
        if isinstance(value, list):
            return [self._substituted(one, (*path, number)) for number, one in enumerate(value)]
        return _VARIABLE.sub(lambda found: self._variable(found, path), value) if isinstance(value, str) else value

    def _variable(self, found: re.Match[str], path: KeyPath) -> str:
        if found[1]:
            return found[0][1:]
        given: str | None = self._environment.get(found[2], found[3])
        if given is None:
            self._report(path, f"environment variable {found[2]} is not set: set it, or write ${{{found[2]}:-default}}")
            return ""
        return given

    def _report(self, path: KeyPath, message: str) -> None:
        line = next((self._lines[path[:size]] for size in range(len(path), 0, -1) if path[:size] in self._lines), None)
        self._problems.append(Problem(self._file, line, message))


def _required(one: Field[Any]) -> bool:
    return one.default is MISSING and one.default_factory is MISSING


def _flat(given: Any, before: str = "") -> Any:
    """Flatten settings to dotted names: in TOML, an unquoted `security.protocol` is a nested table."""
    if not isinstance(given, dict):
        return given
    found: dict[str, Any] = {}
    for key, value in given.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{before}{key}.")
        else:
            found[f"{before}{key}"] = value
    return found
