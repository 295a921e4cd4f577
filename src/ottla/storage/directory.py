"""List the files of a partition's directory, and clean up what a crash left behind.

Compaction writes `.cleaned` files, renames them to `.swap` when they are complete and on disk, removes the segments
that they replace, and renames them to their final names. So a `.cleaned` file is removed, and a `.swap` file replaces
the segments of its offsets. `.deleted` files are removed.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from ottla.storage.files import (
    CLEANED,
    DELETED,
    LOG,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    SWAP,
    file_name,
    parse_file_name,
    remove_files,
)
from ottla.storage.scanning import walk


@dataclass(slots=True)
class Listing:
    """The contents of a directory: the files of each segment by suffix, and the offsets of the producer snapshots."""

    segments: dict[int, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    snapshots: list[int] = field(default_factory=list)


def tidy(directory: str, note: Callable[[str], None]) -> Listing:
    """Finish or undo an interrupted compaction, and list the files. `note` gets a sentence for each repair."""
    names = os.listdir(directory)
    leftover = [name for name in names if name.endswith((DELETED, CLEANED, ".tmp"))]
    remove_files(os.path.join(directory, name) for name in leftover)
    swapped = sorted({parsed[0] for name in names if (parsed := parse_file_name(name)) and parsed[2] == SWAP})
    for base_offset in swapped:
        _finish_swap(directory, base_offset, names, note)
    return _list(os.listdir(directory) if swapped or leftover else names)


def _list(names: list[str]) -> Listing:
    listing = Listing()
    for name in names:
        parsed = parse_file_name(name)
        if parsed is None or parsed[2]:
            continue
        base_offset, suffix, _ = parsed
        if suffix == SNAPSHOT:
            listing.snapshots.append(base_offset)
        elif suffix in SEGMENT_SUFFIXES:
            listing.segments[base_offset][suffix] = name
    return listing


def _finish_swap(directory: str, base_offset: int, names: list[str], note: Callable[[str], None]) -> None:
    """Replace the original segments by the compacted one."""
    swap = os.path.join(directory, file_name(base_offset, LOG + SWAP))
    if os.path.exists(swap):
        end_offset = _end_offset(swap, base_offset)
        for name in names:
            parsed = parse_file_name(name)
            if parsed and not parsed[2] and parsed[1] in SEGMENT_SUFFIXES and base_offset <= parsed[0] < end_offset:
                remove_files([os.path.join(directory, name)])
        note(f"finished the interrupted compaction of offsets {base_offset} to {end_offset - 1}")
    for suffix in SEGMENT_SUFFIXES:
        path = os.path.join(directory, file_name(base_offset, suffix))
        if os.path.exists(path + SWAP):
            os.replace(path + SWAP, path)


def _end_offset(path: str, base_offset: int) -> int:
    """The offset after the last batch of a log file."""
    end_offset = base_offset + 1
    with open(path, "rb", buffering=0) as file:
        for piece in walk(file.fileno(), 0, os.fstat(file.fileno()).st_size, check_crc=False):
            if piece.batches:
                end_offset = piece.batches[-1][1].next_offset
    return end_offset
