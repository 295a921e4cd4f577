"""Topics as Spark tables and streams: ``format("ottla")`` on the Python Data Source API, without a jar.

>>> from ottla.spark import session
>>> spark = session()                                                                      # doctest: +SKIP
>>> spark.read.format("ottla").option("kafka.bootstrap.servers", "localhost:9092")         # doctest: +SKIP

Requires ``pip install 'ottla[spark]'``. Imports are lazy, because Spark imports this package in every worker.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.spark.exactly_once import NotDelivered
    from ottla.spark.finished import commit_finished
    from ottla.spark.java import NoJava
    from ottla.spark.loss import DataLoss
    from ottla.spark.options import OptionError
    from ottla.spark.sessions import activate, prepare, session

__all__ = [
    "DataLoss",
    "NoJava",
    "NotDelivered",
    "OptionError",
    "activate",
    "commit_finished",
    "prepare",
    "session",
]

_HOMES = {
    "NotDelivered": "exactly_once",
    "DataLoss": "loss",
    "NoJava": "java",
    "OptionError": "options",
    "activate": "sessions",
    "commit_finished": "finished",
    "prepare": "sessions",
    "session": "sessions",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found
    return found
