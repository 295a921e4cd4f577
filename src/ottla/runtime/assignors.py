"""Load the assignors that a config lists: by name, Kafka's class name, class, instance or module.Class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ottla.assignors import BY_NAME, Assignor
from ottla.errors import ConfigError
from ottla.runtime.plugins import instance

_JAVA_NAMES = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
    "UniformAssignor": "uniform",
}
#: The broker cannot run these: they need what only classic members send, or give a partition to several members.
_CLIENT_ONLY = ("cooperative-sticky", "broadcast")


def client_assignors(values: Sequence[Any]) -> tuple[Assignor, ...]:
    """Return the assignors of a consumer, the preferred one first.

    >>> [assignor.name for assignor in client_assignors(["range", "cooperative-sticky"])]
    ['range', 'cooperative-sticky']
    """
    return _load("partition.assignment.strategy", values, BY_NAME)


def server_assignors(values: Sequence[Any]) -> tuple[Assignor, ...]:
    """Return the assignors of the broker, the default first.

    >>> [assignor.name for assignor in server_assignors(["uniform", "range"])]
    ['uniform', 'range']
    """
    built_in = {name: assignor for name, assignor in BY_NAME.items() if name not in _CLIENT_ONLY}
    return _load("group.consumer.assignors", values, built_in)


def _load(config: str, values: Sequence[Any], built_in: Mapping[str, type[Assignor]]) -> tuple[Assignor, ...]:
    loaded = tuple(_load_one(config, value, built_in) for value in values)
    names = [assignor.name for assignor in loaded]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"{config}: several assignors have the name {', '.join(twice)}. Each needs its own name.")
    return loaded


def _load_one(config: str, value: Any, built_in: Mapping[str, type[Assignor]]) -> Assignor:
    if isinstance(value, str):
        name = _JAVA_NAMES.get(value.rpartition(".")[2], value) if value.startswith("org.apache.kafka.") else value
        if name in built_in:
            return built_in[name]()
        if "." not in value and ":" not in value:
            raise ConfigError(
                f"{config}: there is no assignor {value!r}. Built in are {', '.join(built_in)}; write your own one as "
                "module.Class."
            )
    assignor = instance(value, config)
    if not isinstance(assignor, Assignor) or not isinstance(getattr(assignor, "name", None), str):
        raise ConfigError(
            f"{config}: {value!r} is not an assignor. Give a subclass of ottla.Assignor with `name` and `assign`."
        )
    return assignor
