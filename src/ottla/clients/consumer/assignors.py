"""The assignors that partition.assignment.strategy names: by name, as a class or instance, or by where a class is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.assignors import BY_NAME, Assignor
from ottla.consuming.leading import JAVA_NAMES
from ottla.errors import ConfigError
from ottla.runtime.plugins import instance

_NAME = "partition.assignment.strategy"


def load_assignors(values: Sequence[Any]) -> list[Assignor]:
    """Instances, the preferred one first; ConfigError for what is no assignor."""
    found = [_assignor(value) for value in values]
    names = [one.name for one in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{_NAME} has two assignors with the name {name!r}: each needs its own.")
    return found


def _assignor(value: Any) -> Assignor:
    if isinstance(value, str):
        short = JAVA_NAMES.get(value.rpartition(".")[2], value) if value.startswith("org.apache.kafka.") else value
        if short in BY_NAME:
            return BY_NAME[short]()
        if "." not in value and ":" not in value:
            raise ConfigError(
                f"{_NAME}: there is no assignor {value!r}. There are {', '.join(BY_NAME)}; for one of your own give "
                "the class, an instance, or package.module.Class."
            )
    made = instance(value, _NAME)
    if not isinstance(getattr(made, "name", None), str) or not callable(getattr(made, "assign", None)):
        raise ConfigError(f"{_NAME}: {value!r} is no assignor: subclass ottla.Assignor with `name` and `assign`.")
    if not isinstance(made, Assignor):
        raise ConfigError(f"{_NAME}: {type(made).__name__} must be a subclass of ottla.Assignor.")
    return made
