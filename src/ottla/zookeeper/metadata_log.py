"""The log of the controller's decisions in ZooKeeper.

A batch of records is one node, `/metadata/log/<position>`. `/metadata/head` has the position of the last batch, and all
brokers watch it. An append is one transaction: check the version of `/controller_epoch`, create the node, set the
head. So a controller that was replaced cannot write, whatever it believes.

The head is set from one version to the next, so there is never a gap, even if several appends are under way when a
connection breaks. An append whose answer was lost is sent again: the same position cannot be written twice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ottla.errors import NotController
from ottla.metadata.records import MetadataRecord
from ottla.zookeeper.batches import Batch, SnapshotPointer, encode_batch, epoch_of, parse_batch, parse_records, pieces
from ottla.zookeeper.client import Observer, Watch, ZooKeeper
from ottla.zookeeper.layout import CONTROLLER_EPOCH, HEAD, LOG, SNAPSHOT
from ottla.zookeeper.snapshots import write_snapshot
from ottla.zookeeper.values import (
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    NoNode,
    Rejected,
    SessionClosed,
    Set,
    ZooKeeperError,
)

OnBatch: TypeAlias = Callable[[int, Sequence[MetadataRecord]], None]
_READ_AT_ONCE = 64


@dataclass(slots=True, eq=False)
class _Append:
    """An append that is under way."""

    position: int
    epoch: int
    records: list[MetadataRecord]
    data: bytes
    answer: asyncio.Future[int]
    done: asyncio.Future[None]


class MetadataLog:
    """The metadata log of a cluster, for a reader or the controller.

        log = MetadataLog(zookeeper)
        metadata.replay_all(await log.load())
        log.follow(on_batch, on_reset)
        position = await log.append(records, epoch=epoch)   # only the controller; calls on_batch before it returns

    Each batch is given to `on_batch` once and in order, the controller's own too.
    """

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self.position = 0
        """The position of the last batch that was read. 0 means none."""
        self.snapshot_position = 0
        """The position of the last known snapshot. How far the log has grown since says when to write the next."""
        self._head_ahead = 0
        """The version of the head minus its position."""
        self._on_batch: OnBatch = _ignore
        self._on_reset: OnBatch = _ignore
        self._reading = asyncio.Lock()
        self._appends: deque[_Append] = deque()
        self._writer: asyncio.Task[None] | None = None
        self._observer: Observer | None = None

    async def stop(self) -> None:
        """Stop following. An append under way fails with SessionClosed: it may have happened."""
        if self._observer is not None:
            await self._observer.stop()
        if self._writer is not None:
            self._writer.cancel()
        self._fail_appends(SessionClosed("the metadata log was closed"))

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def load(self) -> list[MetadataRecord]:
        """Return all records: the snapshot and the log up to the head. The list is empty if the cluster is new."""
        self.position, records = await self._load()
        return records

    async def _load(self) -> tuple[int, list[MetadataRecord]]:
        await self._zookeeper.sync(HEAD)
        while True:
            pointer = SnapshotPointer.parse((await self._zookeeper.get(SNAPSHOT)).data)
            head = await self._read_head()
            try:
                parts = await self._get(*(f"{SNAPSHOT}/{name}" for name in pointer.names()))
                records = [record for part in parts for record in parse_records(part)]
                for first in range(pointer.position + 1, head + 1, _READ_AT_ONCE):
                    for batch in await self._read_batches(first, min(first + _READ_AT_ONCE - 1, head)):
                        records += batch.records
            except NoNode:
                continue  # a newer snapshot has replaced this one
            self.snapshot_position = pointer.position
            return head, records

    def follow(self, on_batch: OnBatch, on_reset: OnBatch) -> None:
        """Give every later batch to `on_batch`, in order, on the event loop.

        If the log after the last batch was replaced by a snapshot, because this broker was away for long, `on_reset`
        gets the position and all records of the whole state instead.
        """
        self._on_batch = on_batch
        self._on_reset = on_reset
        self._observer = Observer(self._zookeeper, "following the metadata log", self._refresh)

    async def catch_up(self) -> int:
        """Read up to the current head, and return its position. Appends of an earlier term end first.

        A new controller does this before it decides anything.
        """
        if self._writer is not None:
            await asyncio.wait([self._writer])
        await self._zookeeper.sync(HEAD)
        await self._read_on(None)
        return self.position

    async def _refresh(self, watch: Watch) -> None:
        while self._writer is not None:
            await asyncio.wait([self._writer])  # our own appends need not be read
        await self._read_on(watch)

    async def _read_on(self, watch: Watch | None) -> None:
        async with self._reading:
            # The batch is asked for together with the head, which saves a round trip.
            first = self.position + 1
            head, batch = await asyncio.gather(self._read_head(watch), self._zookeeper.find(_path(first)))
            if batch is not None and first <= head:
                self._deliver(first, parse_batch(batch.data).records)
            try:
                while self.position < head:
                    first = self.position + 1
                    batches = await self._read_batches(first, min(first + _READ_AT_ONCE - 1, head))
                    for position, each in enumerate(batches, first):
                        self._deliver(position, each.records)
            except NoNode:
                head, records = await self._load()
                if head > self.position:
                    self.position = head
                    self._on_reset(head, records)

    def _deliver(self, position: int, records: Sequence[MetadataRecord]) -> None:
        if position == self.position + 1:
            self.position = position
            self._on_batch(position, records)

    async def _read_head(self, watch: Watch | None = None) -> int:
        node = await self._zookeeper.get(HEAD, watch)
        position = int(node.data)
        self._head_ahead = node.stat.version - position
        return position

    async def _read_batches(self, first: int, last: int) -> list[Batch]:
        return [parse_batch(data) for data in await self._get(*map(_path, range(first, last + 1)))]

    async def _get(self, *paths: str) -> list[bytes]:
        return [node.data for node in await asyncio.gather(*map(self._zookeeper.get, paths))]

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def append(self, records: Sequence[MetadataRecord], *, epoch: int) -> int:
        """Append records, give them to `on_batch`, and return the position of the last batch.

        Records that do not fit in one node become several batches. While ZooKeeper does not answer, this waits. Several
        appends may be under way: they are written in the order of the calls, and if one fails, so do those after it.

        Raises NotController if another controller was elected since this epoch. Then the failed batch was not written.
        There is one exception: the answer was lost, and a snapshot of the new controller has replaced the batch since.
        """
        fitting = list(pieces(records))  # Raises before anything is written.
        appends = [self._send(piece.records, encode_batch(epoch, piece.lines), epoch) for piece in fitting]
        if not appends:
            return self.position
        results = await asyncio.gather(*(asyncio.shield(each.done) for each in appends), return_exceptions=True)
        for result in results:
            if result is not None:
                raise result
        return appends[-1].position

    async def write_snapshot(self, records: Sequence[MetadataRecord], position: int, *, epoch: int) -> None:
        """Write the state after the batch at `position` as a snapshot, and delete what is older.

        `records` is the whole state. Raises NotController as `append` does.
        """
        await write_snapshot(self._zookeeper, records, position, epoch)
        self.snapshot_position = position

    def _send(self, records: list[MetadataRecord], data: bytes, epoch: int) -> _Append:
        position = (self._appends[-1].position if self._appends else self.position) + 1
        answer = self._write(position, epoch, data)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        append = _Append(position, epoch, records, data, answer, done)
        self._appends.append(append)
        if self._writer is None:
            self._writer = asyncio.create_task(self._finish_appends(), name="appending to the metadata log")
        return append

    def _write(self, position: int, epoch: int, data: bytes) -> asyncio.Future[int]:
        return self._zookeeper.multi(
            Check(CONTROLLER_EPOCH, epoch),
            Create(_path(position), data),
            Set(HEAD, str(position).encode(), position - 1 + self._head_ahead),
        )

    async def _finish_appends(self) -> None:
        try:
            while self._appends:
                append = self._appends[0]
                await self._settle(append)
                self._deliver(append.position, append.records)
                self._appends.popleft()
                append.done.set_result(None)
        except Exception as error:
            # Those behind it cannot succeed: the head did not get the version that they require.
            self._fail_appends(error)
        finally:
            self._writer = None

    def _fail_appends(self, error: Exception) -> None:
        for append in self._appends:
            append.done.set_exception(error)
            append.done.exception()  # its caller may be gone
        self._appends.clear()

    async def _settle(self, append: _Append) -> None:
        """Return when the append has happened. Raise if it has not and never will."""
        is_first_answer = True
        while True:
            try:
                await append.answer
                return
            except ConnectionLost:
                pass
            except Rejected as error:
                if error.index < 2 and not is_first_answer and await self._is_written(append):
                    return
                if error.index == 0:
                    raise NotController(f"another controller was elected after epoch {append.epoch}") from None
                if not (is_first_answer and isinstance(error.reason, BadVersion)):
                    raise ZooKeeperError(
                        f"position {append.position} of the metadata log cannot be written: {error.reason}"
                    ) from None
                # An append before this one was lost with a connection, and has been repeated since.
            is_first_answer = False
            append.answer = self._write(append.position, append.epoch, append.data)

    async def _is_written(self, append: _Append) -> bool:
        """Whether the node is ours. There is one controller for each epoch, and it uses a position once."""
        node = await self._zookeeper.find(_path(append.position))
        return node is not None and epoch_of(node.data) == append.epoch


def _path(position: int) -> str:
    return f"{LOG}/{position:020d}"


def _ignore(_position: int, _records: Sequence[MetadataRecord]) -> None:
    pass
