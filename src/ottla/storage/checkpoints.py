"""The small text files next to the logs, in Kafka's formats.

    recovery-point-offset-checkpoint, log-start-offset-checkpoint,
    replication-offset-checkpoint, cleaner-offset-checkpoint   version 0, number of lines, then "topic partition offset"
    leader-epoch-checkpoint (in each partition)                 version 0, number of lines, then "epoch start-offset"
    partition.metadata (in each partition)                      version 0 and the topic id
    .kafka_cleanshutdown                                        JSON; only there after a clean shutdown

`DamagedCheckpoint` reports a file that cannot be read; the caller continues without it.
"""

from __future__ import annotations

import base64
import json
import os
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

from ottla.storage.files import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, write_atomically
from ottla.types import TopicPartition

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
NO_BROKER_EPOCH = -1


class DamagedCheckpoint(Exception):
    """A checkpoint file is not in its format."""


def read_offsets(path: Path) -> dict[TopicPartition, int]:
    """The offsets in a checkpoint file; empty if the file does not exist."""
    offsets = {}
    for fields in _read_lines(path, 3):
        offsets[TopicPartition(fields[0], _number(path, fields[1]))] = _number(path, fields[2])
    return offsets


def write_offsets(path: Path, offsets: Mapping[TopicPartition, int], *, sync: bool) -> None:
    _write_lines(path, (f"{p.topic} {p.partition} {offset}" for p, offset in offsets.items()), sync=sync)


def read_epochs(directory: str) -> list[tuple[int, int]]:
    """(epoch, start offset) pairs of a partition; empty if the file does not exist."""
    path = Path(directory, LEADER_EPOCH_CHECKPOINT)
    return [(_number(path, epoch), _number(path, offset)) for epoch, offset in _read_lines(path, 2)]


def write_epochs(directory: str, epochs: Iterable[tuple[int, int]]) -> None:
    path = Path(directory, LEADER_EPOCH_CHECKPOINT)
    _write_lines(path, (f"{epoch} {offset}" for epoch, offset in epochs), sync=False)


def _read_lines(path: Path, fields: int) -> list[list[str]]:
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return []
    except UnicodeDecodeError:
        raise DamagedCheckpoint(f"{path} is not a text file") from None
    version, *rest = text.splitlines() or [""]
    if version.strip() != "0":
        raise DamagedCheckpoint(f"{path} has version {version!r}; only version 0 is supported")
    rows = [line.split() for line in rest[1:] if line.strip()]
    if not rest or not rest[0].isdigit() or int(rest[0]) != len(rows) or any(len(r) != fields for r in rows):
        raise DamagedCheckpoint(f"{path} is incomplete or has invalid lines")
    return rows


def _number(path: Path, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise DamagedCheckpoint(f"{path} has {text!r} in place of a number") from None


def _write_lines(path: Path, lines: Iterable[str], *, sync: bool) -> None:
    rows = list(lines)
    write_atomically(path, "\n".join(["0", str(len(rows)), *rows, ""]).encode(), sync=sync)


def uuid_text(value: uuid.UUID) -> str:
    """A UUID as Kafka writes it: base64 for URLs, without padding.

    >>> uuid_text(uuid.UUID(int=1))
    'AAAAAAAAAAAAAAAAAAAAAQ'
    """
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def uuid_from_text(text: str) -> uuid.UUID:
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def write_partition_metadata(directory: str, topic_id: uuid.UUID) -> None:
    """Write the file of a new partition; it never changes later."""
    with open(os.path.join(directory, PARTITION_METADATA), "wb", buffering=0) as file:
        file.write(f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode())


def read_partition_metadata(directory: str) -> uuid.UUID | None:
    """The topic id of a partition's directory; None if the file is missing or damaged."""
    try:
        with open(os.path.join(directory, PARTITION_METADATA), "rb", buffering=0) as file:
            lines = file.read().decode("utf-8", "replace").splitlines()
        fields = dict(line.split(": ", 1) for line in lines if ": " in line)
        return uuid_from_text(fields["topic_id"])
    except (FileNotFoundError, KeyError, ValueError):
        return None


def write_clean_shutdown(directory: Path, broker_epoch: int) -> None:
    data = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()
    write_atomically(directory / CLEAN_SHUTDOWN, data, sync=True)


def take_clean_shutdown(directory: Path) -> int | None:
    """The broker epoch at the last shutdown if that was clean, else None; -1 if the file does not tell it.

    The file is removed, since it does not hold for the running broker.
    """
    path = directory / CLEAN_SHUTDOWN
    try:
        data = path.read_bytes()
        path.unlink()
    except FileNotFoundError:
        return None
    try:
        return int(json.loads(data)["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return NO_BROKER_EPOCH
