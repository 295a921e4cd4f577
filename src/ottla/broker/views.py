"""``broker.topics`` and ``broker.groups``: what a test may want to assert. A cluster has them too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from ottla.consuming.values import ConsumerRecord
from ottla.errors import GroupIdNotFound
from ottla.types import TopicPartition


@dataclass(frozen=True, slots=True)
class GroupState:
    """A group as its coordinator sees it."""

    group_id: str
    state: str
    """Kafka's name of the state, such as ``"Stable"``."""
    protocol: str
    """``"Classic"`` or ``"Consumer"``."""
    members: tuple[str, ...]
    """The ids of the members."""
    offsets: dict[TopicPartition, int]
    """The committed offsets."""
    lags: dict[TopicPartition, int]
    """How many records there are after each committed offset."""

    @property
    def lag(self) -> int:
        """The sum of `lags`."""
        return sum(self.lags.values())


class Read(Protocol):
    """Reads a topic: UnknownTopicOrPartition if it does not exist."""

    def __call__(self, topic: str, partition: int | None, /, *, committed: bool) -> list[ConsumerRecord]: ...


class TopicView:
    """One topic."""

    def __init__(self, read: Read, name: str) -> None:
        self._read = read
        self.name = name

    def __repr__(self) -> str:
        return f"<topic {self.name}>"

    def records(self, partition: int | None = None, *, committed: bool = False) -> list[ConsumerRecord]:
        """All records, by partition and offset, with keys and values as bytes.

        `committed` leaves out records of aborted and open transactions, as ``isolation.level=read_committed`` does.
        """
        return self._read(self.name, partition, committed=committed)

    def values(self, partition: int | None = None, *, committed: bool = False) -> list[bytes | None]:
        """The values of all `records`, with the same arguments."""
        return [record.value for record in self.records(partition, committed=committed)]


class Topics(Mapping[str, TopicView]):
    """The topics by name, without internal ones."""

    def __init__(self, names: Callable[[], list[str]], read: Read) -> None:
        self._names = names
        self._read = read

    def __getitem__(self, name: str) -> TopicView:
        return TopicView(self._read, name)

    def __contains__(self, name: object) -> bool:
        return name in self._names()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())


class Groups(Mapping[str, GroupState]):
    """The groups by id. A value is the state of this moment."""

    def __init__(self, ids: Callable[[], list[str]], state: Callable[[str], GroupState]) -> None:
        self._ids = ids
        self._state = state

    def __getitem__(self, group_id: str) -> GroupState:
        try:
            return self._state(group_id)
        except GroupIdNotFound as error:
            raise KeyError(str(error)) from None

    def __contains__(self, group_id: object) -> bool:
        return group_id in self._ids()

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids())

    def __len__(self) -> int:
        return len(self._ids())
