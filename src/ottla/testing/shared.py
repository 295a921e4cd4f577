"""A broker that several tests share, with topics and groups of their own for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import TYPE_CHECKING, TypeVar

from ottla.broker.faults import Faults
from ottla.broker.views import GroupState, TopicView

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

T = TypeVar("T")
_tests = count(1)


class SharedBroker:
    """One test's part of a shared broker.

    ``topic("orders")`` and ``group("billing")`` are names that no other test has; `topics` and `groups` take the short
    names and these. Faults of the test end with it. They befall the requests of all clients, so give them a topic or
    client id if other tests run in threads beside this one.
    """

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        """The broker itself."""
        self._suffix = f"-{next(_tests)}"

    @property
    def bootstrap_servers(self) -> str:
        """The address to give to clients, as ``host:port``."""
        return self.broker.bootstrap_servers

    def topic(self, name: str) -> str:
        """The name of this test's topic. It is the same for the whole test."""
        return name + self._suffix

    def group(self, name: str) -> str:
        """The id of this test's group."""
        return name + self._suffix

    @property
    def faults(self) -> Faults:
        return self.broker.faults

    @property
    def topics(self) -> Mapping[str, TopicView]:
        """This test's topics by their short names."""
        return _Own(self.broker.topics, self._suffix)

    @property
    def groups(self) -> Mapping[str, GroupState]:
        """This test's groups by their short names."""
        return _Own(self.broker.groups, self._suffix)


class _Own(Mapping[str, T]):
    """The part of a mapping whose names end in a suffix. Its names have no suffix, and are found with it too."""

    def __init__(self, everything: Mapping[str, T], suffix: str) -> None:
        self._everything = everything
        self._suffix = suffix

    def __getitem__(self, name: str) -> T:
        return self._everything[self._whole(name)]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._whole(name) in self._everything

    def _whole(self, name: str) -> str:
        longer = name + self._suffix
        return name if name.endswith(self._suffix) and longer not in self._everything else longer

    def __iter__(self) -> Iterator[str]:
        return (name.removesuffix(self._suffix) for name in self._everything if name.endswith(self._suffix))

    def __len__(self) -> int:
        return sum(1 for _ in self)
