"""What fits into the response to a fetch: bytes, and open files.

A consumer may fetch from more partitions than the broker can have files open. So only the first slices of a response
refer to files, and what follows is copied, up to a limit. Segments that were not checked since the start keep a file
open until they are: only some are checked at a time, and the others wait for the next fetch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ottla.protocol.codec import Message
from ottla.storage.segment import Segment

#: A response may refer to this part of the files that the broker can have open, within limits.
PART_OF_FILES, FEWEST_FILES, MOST_FILES = 16, 32, 1_000
#: The bytes that are copied for partitions after them.
COPIED_BYTES = 4 << 20
#: So many times more segments are checked together.
CHECKED_TOGETHER = 4


class Unverified(Exception):
    """A response would be empty because segments have not been checked yet."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        super().__init__(f"{len(segments)} segments have not been checked")
        self.segments = segments

    async def verify(self) -> None:
        """Check the segments in a thread."""
        await verify(self.segments)


class Room:
    """How much of a response is used."""

    __slots__ = ("_files", "_most_files", "_put_off", "is_closed", "left", "size", "unverified")

    def __init__(self, most: int, open_files: int) -> None:
        """``open_files`` is how many files the broker can have open."""
        self._most_files = min(max(FEWEST_FILES, open_files // PART_OF_FILES), MOST_FILES)
        self.left = most
        """The bytes that still fit. The first batch may be larger."""
        self.size = 0
        self.is_closed = False
        """Nothing else is read."""
        self.unverified: list[Segment] = []
        self._files = 0
        self._put_off = 0

    def take(self, response: Message, length: int) -> None:
        """Add the records of a partition."""
        self.size += length
        self.left -= length
        self._files += 1
        if self._files == self._most_files:
            self.left = min(self.left, COPIED_BYTES)
        elif self._files > self._most_files:
            response["records"] = response["records"].read()

    def put_off(self, segment: Segment, max_bytes: int) -> None:
        """Leave out a partition until its segment has been checked. It would take ``max_bytes`` at most."""
        self.unverified.append(segment)
        self._put_off += min(segment.size, max_bytes)
        if self._put_off >= self.left or len(self.unverified) == CHECKED_TOGETHER * self._most_files:
            self.left, self.is_closed = 0, True


async def verify(segments: Sequence[Segment]) -> None:
    """Check segments in a thread."""

    def run() -> None:
        for segment in segments:
            segment.verify()

    await asyncio.get_running_loop().run_in_executor(None, run)
