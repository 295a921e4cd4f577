"""The input and output of a compaction run: plain values that two processes exchange as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ottla.types import Millis


@dataclass(slots=True)
class SourceSegment:
    """A segment to read. `end_offset` is the base offset of the next one."""

    base_offset: int
    end_offset: int
    size: int
    index_size: int
    time_index_size: int


@dataclass(slots=True)
class CleaningJob:
    """The input of a run."""

    directory: str
    segments: list[SourceSegment]
    first_dirty_offset: int
    upper_bound: int
    """The limit of compaction: the base offset of the first segment that must not be compacted."""
    now: Millis
    delete_retention_ms: int
    max_segment_size: int
    max_index_size: int
    index_interval: int
    max_keys: int
    last_offsets: dict[int, int] = field(default_factory=dict)
    """Offset of the last data batch of every active producer; -1 if its last batch is a marker."""
    producer_epochs: dict[int, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        job = {name: getattr(self, name) for name in self.__slots__}
        job["segments"] = [
            [s.base_offset, s.end_offset, s.size, s.index_size, s.time_index_size] for s in self.segments
        ]
        return job

    @classmethod
    def from_json(cls, job: dict[str, Any]) -> CleaningJob:
        segments = [SourceSegment(*values) for values in job.pop("segments")]
        last_offsets = {int(key): value for key, value in job.pop("last_offsets").items()}
        epochs = {int(key): value for key, value in job.pop("producer_epochs").items()}
        return cls(segments=segments, last_offsets=last_offsets, producer_epochs=epochs, **job)


@dataclass(slots=True)
class CleanedSegment:
    """A compacted segment that can replace its sources."""

    base_offset: int
    sources: list[int]
    size: int
    max_timestamp: int
    max_timestamp_offset: int
    records_read: int = 0
    records_kept: int = 0
    bytes_read: int = 0
