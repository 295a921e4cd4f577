"""Kafka's partitioned log in one ``pip install``.

>>> import ottla
>>> with ottla.Broker() as broker:
...     address = broker.bootstrap_servers  # give this to any Kafka client
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.errors import KafkaError, OttlaError
    from ottla.types import TopicPartition

__version__ = "0.1.0"
__all__ = ["Broker", "KafkaError", "OttlaError", "TopicPartition", "__version__"]

_HOMES = {
    "Broker": "ottla.broker.broker",
    "KafkaError": "ottla.errors",
    "OttlaError": "ottla.errors",
    "TopicPartition": "ottla.types",
}


def __getattr__(name: str) -> Any:
    # Loaded when first used: `ottla --help` and the pytest plugin need none of it.
    if name not in _HOMES:
        raise AttributeError(f"module 'ottla' has no attribute {name!r}")
    import importlib

    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
