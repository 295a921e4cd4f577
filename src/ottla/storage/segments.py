"""The segments of a log in the order of their offsets."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from ottla.storage.segment import Segment


class Segments:
    """One or more segments. Appends go to the last one, the active segment."""

    __slots__ = ("_bases", "_items", "active")

    def __init__(self, items: Iterable[Segment]) -> None:
        self._items = list(items)
        self._bases = [segment.base_offset for segment in self._items]
        self.active = self._items[-1]

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._items)

    def __getitem__(self, number: int) -> Segment:
        return self._items[number]

    @property
    def inactive(self) -> Sequence[Segment]:
        return self._items[:-1]

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._items)

    def number_for(self, offset: int) -> int:
        """The index of the segment that holds `offset`; 0 for offsets before the first segment."""
        return max(0, bisect_right(self._bases, offset) - 1)

    def end_of(self, segment: Segment, log_end_offset: int) -> int:
        """The offset at which the range of `segment` ends."""
        if segment is self.active:
            return log_end_offset
        return self._bases[bisect_right(self._bases, segment.base_offset)]

    def after(self, segment: Segment) -> Segment | None:
        number = bisect_right(self._bases, segment.base_offset)
        return self._items[number] if number < len(self._items) else None

    def append(self, segment: Segment) -> None:
        self._items.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def replace(self, old: Sequence[Segment], new: Sequence[Segment]) -> None:
        """Put `new` in the place of the consecutive segments `old`."""
        first = self._items.index(old[0])
        if self._items[first : first + len(old)] != list(old):
            raise ValueError("the segments to replace are not consecutive in the log")
        self._items[first : first + len(old)] = new
        self._bases = [segment.base_offset for segment in self._items]
        self.active = self._items[-1]
