"""Assignors: how the partitions of topics are shared among the members of a group.

Each assignor has its own file and Kafka's name. ``BY_NAME`` has those that need no arguments.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.assignors.base import Assignment, Assignor, Partitions, Subscription
from ottla.assignors.broadcast import BroadcastAssignor
from ottla.assignors.cooperative_sticky import CooperativeStickyAssignor
from ottla.assignors.random import RandomAssignor
from ottla.assignors.range import RangeAssignor
from ottla.assignors.roundrobin import RoundRobinAssignor
from ottla.assignors.sticky import StickyAssignor
from ottla.assignors.uniform import UniformAssignor

BY_NAME: Mapping[str, type[Assignor]] = {
    assignor.name: assignor
    for assignor in (
        RangeAssignor,
        RoundRobinAssignor,
        StickyAssignor,
        CooperativeStickyAssignor,
        UniformAssignor,
        BroadcastAssignor,
    )
}

__all__ = [
    "BY_NAME",
    "Assignment",
    "Assignor",
    "BroadcastAssignor",
    "CooperativeStickyAssignor",
    "Partitions",
    "RandomAssignor",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
    "Subscription",
    "UniformAssignor",
]
