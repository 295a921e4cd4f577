"""What of the records in ``__consumer_offsets`` holds now. Values only, no I/O."""

from __future__ import annotations

from collections import defaultdict

from ottla.clients.admin.offsets_topic import Entry
from ottla.coordinator.records import UnknownKey


class Latest:
    """The last entry of each key that counts, of entries in the order that they lie in.

    As for the coordinator, one that was written in a transaction counts when that is committed, and then from where
    it lies: what came after it, in another transaction or in none, has replaced it meanwhile.
    """

    def __init__(self) -> None:
        self._count = 0
        self._last: dict[object, tuple[int, Entry]] = {}
        self._waiting: defaultdict[tuple[int | None, int], list[tuple[int, Entry]]] = defaultdict(list)
        """Entries of the open transaction of a producer in a partition."""

    @property
    def is_waiting(self) -> bool:
        """Whether there are entries of transactions that are still open."""
        return bool(self._waiting)

    def entries(self) -> list[Entry]:
        """What was not deleted, in the order that it lies in."""
        return [entry for _, entry in sorted(self._last.values()) if not entry.is_tombstone]

    def add(self, entry: Entry) -> None:
        """Take the next entry of a partition."""
        self._count += 1
        one = entry.transaction
        if one is None:
            self._keep(self._count, entry)
        elif one.marker is None:
            self._waiting[entry.partition, one.producer_id].append((self._count, entry))
        elif one.marker in ("commit", "abort"):
            for place, waited in self._waiting.pop((entry.partition, one.producer_id), ()):
                if one.marker == "commit":
                    self._keep(place, waited)

    def _keep(self, place: int, entry: Entry) -> None:
        if entry.record is None:
            return
        key = entry.record.key
        identity = key.key if isinstance(key, UnknownKey) else key
        if identity not in self._last or self._last[identity][0] < place:
            self._last[identity] = place, entry
