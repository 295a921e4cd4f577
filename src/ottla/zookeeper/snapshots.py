"""Write a snapshot of the metadata log.

A snapshot is written in pieces. It becomes valid when the data of `/metadata/snapshot` names it. Then older pieces and
the batches that it replaces are deleted. Every write checks the epoch of the controller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.errors import NotController, OttlaError
from ottla.metadata.records import MetadataRecord
from ottla.zookeeper.batches import SnapshotPointer, pieces
from ottla.zookeeper.client import ZooKeeper
from ottla.zookeeper.layout import CONTROLLER_EPOCH, LOG, SNAPSHOT
from ottla.zookeeper.values import Check, ConnectionLost, Create, Delete, NodeExists, NoNode, Operation, Rejected, Set

_DELETED_AT_ONCE = 200


async def write_snapshot(zookeeper: ZooKeeper, records: Sequence[MetadataRecord], position: int, epoch: int) -> None:
    """See `MetadataLog.write_snapshot`."""
    current = SnapshotPointer.parse((await zookeeper.get(SNAPSHOT)).data)
    if position < current.position:
        raise OttlaError(f"a snapshot of position {position} is older than the one of position {current.position}")
    if position == current.position:
        return
    parts = [piece.lines for piece in pieces(records)]
    pointer = SnapshotPointer(position, len(parts))
    # A controller that died may have left pieces of the same names.
    await _delete_children(zookeeper, SNAPSHOT, epoch, lambda name: name not in current.names())
    for name, part in zip(pointer.names(), parts, strict=True):
        await _write(zookeeper, epoch, Create(f"{SNAPSHOT}/{name}", part))
    await _write(zookeeper, epoch, Set(SNAPSHOT, pointer.encode()))
    await _delete_children(zookeeper, SNAPSHOT, epoch, lambda name: name not in pointer.names())
    await _delete_children(zookeeper, LOG, epoch, lambda name: int(name) <= position)


async def _delete_children(zookeeper: ZooKeeper, path: str, epoch: int, is_old: Callable[[str], bool]) -> None:
    while names := list(filter(is_old, await zookeeper.children(path))):
        for start in range(0, len(names), _DELETED_AT_ONCE):
            chosen = names[start : start + _DELETED_AT_ONCE]
            await _write(zookeeper, epoch, *(Delete(f"{path}/{name}") for name in chosen))


async def _write(zookeeper: ZooKeeper, epoch: int, *operations: Operation) -> None:
    """Write as the controller of this epoch. An answer that was lost is no error if the write has happened."""
    while True:
        try:
            await zookeeper.multi(Check(CONTROLLER_EPOCH, epoch), *operations)
        except ConnectionLost:
            continue
        except Rejected as error:
            if error.index == 0:
                raise NotController(f"another controller was elected after epoch {epoch}") from None
            if not isinstance(error.reason, NodeExists | NoNode):
                raise
        return
