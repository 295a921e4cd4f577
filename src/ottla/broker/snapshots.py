"""Snapshots of a broker's data, from which other brokers start."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Self

from ottla.coordinator.coordinator import Coordinator
from ottla.coordinator.messages import LeaveRequest, LeavingMember
from ottla.errors import OttlaError
from ottla.runtime.temporary import make_temporary, remove_with

if TYPE_CHECKING:
    from ottla.broker.node import Node

JOURNAL = "metadata.journal"
#: Files that each broker makes for itself.
_LEFT_OUT = (".lock",)
#: Loading ends by itself. A start waits longer for it than for clients, which only have to ask again.
_LOADING_SECONDS = 600.0


class Snapshot:
    """The data of a stopped broker. Any number of brokers can start from it.

    >>> from ottla import Broker, Producer
    >>> with Broker() as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
    ...     _ = producer.send("orders", b"prepared").get(10)
    ...     prepared = broker.snapshot()
    >>> with Broker(from_snapshot=prepared) as broker:
    ...     [record.value for record in broker.topics["orders"].records()]
    [b'prepared']
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        """The directory with the data."""

    def __repr__(self) -> str:
        return f"<snapshot in {self.path}>"

    @classmethod
    def given(cls, source: Snapshot | str | Path) -> Snapshot:
        """Return a snapshot, also for its path. OttlaError if there is none."""
        snapshot = source if isinstance(source, Snapshot) else cls(Path(source))
        if not (snapshot.path / JOURNAL).is_file():
            raise OttlaError(
                f"{snapshot.path} is not a snapshot: make one with broker.snapshot({str(snapshot.path)!r})"
            )
        return snapshot

    @classmethod
    def copy(cls, source: Path, target: Path | None) -> Self:
        """Copy the data directory of a stopped broker."""
        if target is not None and target.exists() and any(target.iterdir()):
            raise OttlaError(f"{target} is not empty: give a new directory for the snapshot")
        snapshot = cls(target or make_temporary())
        _copy(source, snapshot.path)
        if target is None:
            remove_with(snapshot, snapshot.path)
        return snapshot

    def restore(self, directory: Path) -> None:
        """Copy the data to an empty directory."""
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise OttlaError(f"{directory} is not empty: a snapshot can only be restored to a new directory")
        _copy(self.path, directory)


async def remove_members(node: Node) -> None:
    """Let all members leave their groups: they are clients of another broker. Offsets stay."""
    shards = node.groups.shards
    await shards.settle(_LOADING_SECONDS)
    for shard in [each for each in shards.here() if each.is_loaded]:
        for group_id, group in list(shard.coordinator.groups.items()):
            leaving = tuple(LeavingMember(each, reason="started from a snapshot") for each in group.member_ids)
            if leaving:
                await node.groups.run(group_id, Coordinator.leave, LeaveRequest(group_id, leaving))


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, dirs_exist_ok=True, ignore=lambda _, names: {*_LEFT_OUT} & {*names})
