"""Names of files and directories in a data directory, and helpers to write small files.

The layout is Apache Kafka's, so that its tools can read these files. Define the suffix of a new kind of file here.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterable
from pathlib import Path

from ottla.types import TopicPartition

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
SEGMENT_SUFFIXES = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX)

DELETE_DIRECTORY = "-delete"
STRAY_DIRECTORY = "-stray"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

_MAX_NAME = 255
_OFFSET_NAME = re.compile(r"(\d{20})(\.[a-z]+)((?:\.(?:deleted|cleaned|swap))?)")
_PARTITION_NAME = re.compile(r"(.+)-(\d+)")


def file_name(base_offset: int, suffix: str) -> str:
    """The name of a file of the segment that starts at `base_offset`.

    >>> file_name(42, LOG)
    '00000000000000000042.log'
    """
    return f"{base_offset:020d}{suffix}"


def parse_file_name(name: str) -> tuple[int, str, str] | None:
    """Base offset, suffix and state (``.deleted``, ``.cleaned``, ``.swap`` or nothing) of a segment's file.

    >>> parse_file_name("00000000000000000042.index.swap")
    (42, '.index', '.swap')
    """
    match = _OFFSET_NAME.fullmatch(name)
    return (int(match[1]), match[2], match[3]) if match else None


def parse_directory_name(name: str) -> TopicPartition | None:
    """The partition of a directory, or None if it is no partition or waits for its deletion."""
    match = _PARTITION_NAME.fullmatch(name)
    if match is None or name.endswith(DELETE_DIRECTORY):
        return None
    return TopicPartition(match[1], int(match[2]))


def retired_directory_name(topic_partition: TopicPartition, ending: str) -> str:
    """A directory name for a partition that is out of service; a long topic name is cut."""
    suffix = f"-{topic_partition.partition}.{uuid.uuid4().hex}{ending}"
    return topic_partition.topic[: _MAX_NAME - len(suffix)] + suffix


def write_atomically(path: str | Path, data: bytes, *, sync: bool) -> None:
    """Replace a small file. Without `sync` it survives a crash of the process, but not of the machine."""
    temporary = f"{path}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        write_all(descriptor, data, 0)
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(temporary, path)
    if sync:
        sync_path(os.path.dirname(path))


def write_all(descriptor: int, data: bytes | bytearray | memoryview, position: int) -> None:
    """Repeat pwrite until everything is written."""
    written = os.pwrite(descriptor, data, position)
    while written < len(data):
        written += os.pwrite(descriptor, memoryview(data)[written:], position + written)


def touch(path: str) -> None:
    """Create the file if it does not exist."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))


def sync_path(path: str | Path) -> None:
    """fsync a file or directory; a missing one is ignored."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_files(paths: Iterable[str]) -> int:
    """Remove the existing files of `paths` and return their number."""
    removed = 0
    for path in paths:
        try:
            os.unlink(path)
            removed += 1
        except FileNotFoundError:
            continue
    return removed
