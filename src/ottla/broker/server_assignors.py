"""The assignors of ``group.consumer.assignors``: by name, by Kafka's class name, or a class of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.assignors import BY_NAME, Assignor
from ottla.errors import ConfigError
from ottla.runtime.plugins import instance

_NAME = "group.consumer.assignors"
_KAFKA = "org.apache.kafka.coordinator.group.assignor."
#: These expect what only a client of a classic group says, or give partitions to several members.
_NOT_HERE = frozenset({"cooperative-sticky", "broadcast"})
_BUILT_IN = {name: assignor for name, assignor in BY_NAME.items() if name not in _NOT_HERE}


def load_assignors(values: Sequence[Any]) -> tuple[Assignor, ...]:
    """An instance of each, the default first; ConfigError says which cannot be used and why.

    >>> [assignor.name for assignor in load_assignors(["uniform", "range"])]
    ['uniform', 'range']
    """
    loaded = tuple(_load(value) for value in values)
    names = [assignor.name for assignor in loaded]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ConfigError(f"{_NAME}: several assignors have the name {', '.join(sorted(twice))}.")
    return loaded


def _load(value: Any) -> Assignor:
    if isinstance(value, str):
        name = value.removeprefix(_KAFKA).removesuffix("Assignor").lower() if value.startswith(_KAFKA) else value
        if name in _BUILT_IN:
            return _BUILT_IN[name]()
        if "." not in value and ":" not in value:
            raise ConfigError(
                f"{_NAME}: there is no assignor {value}; those by name are {', '.join(_BUILT_IN)}, "
                "one of your own is written as module.Class."
            )
    assignor = instance(value, _NAME)
    if not isinstance(assignor, Assignor) or not isinstance(getattr(assignor, "name", None), str):
        raise ConfigError(f"{_NAME}: {value!r} is no assignor: it must be a subclass of ottla.assignors.Assignor.")
    return assignor
