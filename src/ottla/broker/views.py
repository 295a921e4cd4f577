"""``broker.topics`` and ``broker.groups``: what a test may want to assert."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ottla.broker import inspection
from ottla.broker.inspection import GroupState
from ottla.consuming.values import ConsumerRecord
from ottla.errors import GroupIdNotFound

Ask = Callable[..., Any]
"""Calls a function of `inspection` on the broker's event loop."""


class TopicView:
    """One topic of a broker."""

    def __init__(self, ask: Ask, name: str) -> None:
        self._ask = ask
        self.name = name

    def __repr__(self) -> str:
        return f"<topic {self.name}>"

    def records(self, partition: int | None = None, *, committed: bool = False) -> list[ConsumerRecord]:
        """All records, by partition and offset, with keys and values as bytes.

        `committed` leaves out records of aborted and open transactions, as ``isolation.level=read_committed`` does.
        """
        found: list[ConsumerRecord] = self._ask(inspection.records, self.name, partition, committed=committed)
        return found

    def values(self) -> list[bytes | None]:
        """The values of all records."""
        return [record.value for record in self.records()]


class Topics(Mapping[str, TopicView]):
    """The topics of a broker by name, without internal ones."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def __getitem__(self, name: str) -> TopicView:
        return TopicView(self._ask, name)

    def __contains__(self, name: object) -> bool:
        return name in self._names()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def _names(self) -> list[str]:
        names: list[str] = self._ask(inspection.topics)
        return names


class Groups(Mapping[str, GroupState]):
    """The groups of a broker by id. A value is the state of this moment."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def __getitem__(self, group_id: str) -> GroupState:
        try:
            state: GroupState = self._ask(inspection.group, group_id)
        except GroupIdNotFound as error:
            raise KeyError(str(error)) from None
        return state

    def __contains__(self, group_id: object) -> bool:
        return group_id in self._ids()

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids())

    def __len__(self) -> int:
        return len(self._ids())

    def _ids(self) -> list[str]:
        ids: list[str] = self._ask(inspection.groups)
        return ids
