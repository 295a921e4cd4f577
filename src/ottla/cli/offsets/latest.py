"""The current state in the records of ``__consumer_offsets``. No I/O."""

from __future__ import annotations

from collections import defaultdict

from ottla.clients.admin.offsets_topic import Entry
from ottla.coordinator.records import UnknownKey


class Latest:
    """The last valid entry of each key; entries must be added in log order.

    As in the coordinator, an entry of a transaction counts once the transaction is committed, at its own offset: a
    later entry, in another transaction or in none, still replaces it.
    """

    def __init__(self) -> None:
        self._count = 0
        self._last: dict[object, tuple[int, Entry]] = {}
        self._waiting: defaultdict[tuple[int | None, int], list[tuple[int, Entry]]] = defaultdict(list)
        """Entries of open transactions, by partition and producer."""

    @property
    def is_waiting(self) -> bool:
        """Whether there are entries of open transactions."""
        return bool(self._waiting)

    def entries(self) -> list[Entry]:
        """The entries that are not deleted, in log order."""
        return [entry for _, entry in sorted(self._last.values()) if not entry.is_tombstone]

    def add(self, entry: Entry) -> None:
        """Add the next entry."""
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
