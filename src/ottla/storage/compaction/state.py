"""The state of a compaction run: the last offset of every key, and the open transactions."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from hashlib import blake2b

from ottla.records import BatchHeader
from ottla.storage.transactions import AbortedTransaction

_DIGEST = 16


class OffsetMap:
    """The last offset of every key in the dirty part of a log. Long keys are stored as digests."""

    __slots__ = ("_last", "_max_keys", "end_offset")

    def __init__(self, max_keys: int, start_offset: int) -> None:
        self._last: dict[bytes, int] = {}
        self._max_keys = max_keys
        self.end_offset = start_offset
        """All offsets below are mapped."""

    def __len__(self) -> int:
        return len(self._last)

    def put(self, key: bytes, offset: int) -> bool:
        """Set the offset of a key; False if the map is full."""
        name = _name(key)
        if name not in self._last and len(self._last) >= self._max_keys:
            return False
        self._last[name] = offset
        return True

    def get(self, key: bytes) -> int:
        return self._last.get(_name(key), -1)


def _name(key: bytes) -> bytes:
    return key if len(key) < _DIGEST else blake2b(key, digest_size=_DIGEST).digest()


class Transactions:
    """The state of transactions while the cleaner reads the log in order."""

    def __init__(self) -> None:
        self.aborted_output: list[AbortedTransaction] = []
        self._pending: list[tuple[int, AbortedTransaction]] = []
        self._aborting: dict[int, AbortedTransaction] = {}
        self._seen: set[int] = set()
        self._committed: set[int] = set()

    def add(self, aborted: Iterable[AbortedTransaction]) -> None:
        for entry in aborted:
            heapq.heappush(self._pending, (entry.first_offset, entry))

    def discards_data(self, header: BatchHeader) -> bool:
        """Whether a data batch belongs to an aborted transaction."""
        self._advance(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborting:
            self._seen.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def discards_marker(self, header: BatchHeader, aborted: bool | None) -> bool:
        """Whether no batch of a marker's transaction is left; `aborted` is None for an empty control batch."""
        self._advance(header.last_offset)
        if aborted is None:
            return True
        if not aborted:
            marks = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not marks
        entry = self._aborting.pop(header.producer_id, None)
        if entry is None or header.producer_id not in self._seen:
            return True
        self._seen.discard(header.producer_id)
        self.aborted_output.append(entry)
        return False

    def _advance(self, offset: int) -> None:
        while self._pending and self._pending[0][0] <= offset:
            _, entry = heapq.heappop(self._pending)
            self._aborting.setdefault(entry.producer_id, entry)
