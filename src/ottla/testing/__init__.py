"""Tools for testing programs that use Kafka. See docs/testing.md.

The pytest fixtures ``ottla_broker``, ``ottla_shared_broker`` and ``ottla_cluster`` need no import. ``python -m
ottla.testing`` runs a broker for tests in other languages. Names are imported when they are used, because every pytest
run loads this package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.broker.faults import Fault as Fault
    from ottla.broker.faults import Faults as Faults
    from ottla.broker.snapshots import Snapshot as Snapshot
    from ottla.broker.views import GroupState as GroupState
    from ottla.runtime.clock import ManualClock as ManualClock
    from ottla.testing.report import contents as contents
    from ottla.testing.shared import SharedBroker as SharedBroker
    from ottla.testing.unittests import BrokerTestCase as BrokerTestCase

_MODULES = {
    "BrokerTestCase": "ottla.testing.unittests",
    "Fault": "ottla.broker.faults",
    "Faults": "ottla.broker.faults",
    "GroupState": "ottla.broker.views",
    "ManualClock": "ottla.runtime.clock",
    "SharedBroker": "ottla.testing.shared",
    "Snapshot": "ottla.broker.snapshots",
    "contents": "ottla.testing.report",
}
__all__ = sorted(_MODULES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
