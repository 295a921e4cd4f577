"""The data directory of a broker that joins a cluster.

A broker that was alone and has data brings its topics into a new cluster. After that, its journal is set aside, because
the metadata is in ZooKeeper, and `cluster.id` says to which cluster the directory belongs.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import OttlaError
from ottla.metadata import Metadata, MetadataRecord
from ottla.metadata.records import BrokerConfigsSet, BrokerRegistered, ClusterCreated, from_json, to_json
from ottla.runtime.journal import FileJournal
from ottla.storage.data_dir import DataDirUnusable
from ottla.storage.files import write_atomically
from ottla.storage.manager import LogManager

if TYPE_CHECKING:
    from ottla.broker.node import Node

MEMBER = "cluster.id"
LIFE = "broker.life"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
MIN_ISR = "min.insync.replicas"
logger = logging.getLogger("ottla.cluster")
SET_ASIDE = ".before-cluster"


class WrongCluster(OttlaError):
    """The data directory belongs to another cluster."""


class Joining:
    """Checks and marks the data directory of a broker that joins."""

    def __init__(self, node: Node, journal: str) -> None:
        self._node = node
        self._directories = node.logs.working_dirs
        self._members = {path: found for path in self._directories if (found := member_of(path)) is not None}
        if not self._members:
            require_first_directory(node.logs)
        first = node.logs.data_dirs[0]
        self._journal = first / journal
        self._own: Metadata | None = None
        if first in self._directories and self._journal.exists():
            self._own = self._read_journal()

    def _read_journal(self) -> Metadata:
        """Read what this broker had when it was alone."""
        journal: FileJournal[MetadataRecord] = FileJournal(self._journal, to_json, from_json)
        metadata = Metadata()
        for record in journal.open():
            metadata.replay(record)
        journal.close()
        for record in list(metadata.adopted_by(self._node.id)):
            metadata.replay(record)
        return metadata

    def first_records(self) -> Sequence[MetadataRecord]:
        """Return the first records of a new cluster: what this broker had when it was alone, if anything.

        The minimum of in-sync replicas becomes a config of the cluster. If brokers had different ones in their files,
        leaders could commit records that the controller does not count on.
        """
        if self._own is None or not self._own.cluster_id:
            own: list[MetadataRecord] = [ClusterCreated(next(iter(self._members.values()), None) or new_cluster_id())]
            configs = {}
        else:
            snapshot = self._own.snapshot()
            own = [record for record in snapshot if not isinstance(record, BrokerRegistered)]
            configs = self._own.cluster_configs
        minimum = {MIN_ISR: str(self._node.config.min_insync_replicas)}
        return [*own, BrokerConfigsSet(True, {**minimum, **configs})]

    def previous_epoch(self, at_clean_stop: int) -> int:
        """Return the epoch of the last run if nothing of it is lost, else -1.

        After a clean stop, the data directories say it. After `kill -9` the operating system still has what the
        process wrote, unless it was started again, too.
        """
        if at_clean_stop >= 0:
            return at_clean_stop
        lives = {read_life(directory) for directory in self._directories}
        life = lives.pop() if len(lives) == 1 else None
        return life.epoch if life is not None and life.boot_id and life.boot_id == boot_id() else -1

    def check(self) -> None:
        """Raise WrongCluster if the data directory belongs to another cluster than ZooKeeper."""
        cluster_id = self._node.metadata.cluster_id
        alone = {self._journal.parent: self._own.cluster_id} if self._own is not None else {}
        for directory, mine in {**alone, **self._members}.items():
            if mine and mine != cluster_id:
                raise WrongCluster(
                    f"the data directory {directory} belongs to the cluster {mine}, but zookeeper.connect="
                    f"{self._node.config.zookeeper_connect} is the cluster {cluster_id}; use the ZooKeeper of its "
                    "cluster, or an empty data directory to join this one"
                )
        given = self._node.config.given.get(MIN_ISR)
        agreed = self._node.metadata.cluster_configs.get(MIN_ISR)
        if given is not None and agreed is not None and given.strip() != agreed:
            logger.warning(
                "%s=%s in the config of this broker has no effect: the cluster has %s; alter it for all brokers "
                "(kafka-configs.sh --entity-type brokers --entity-default, or Admin.alter_configs), or for a topic",
                MIN_ISR, given, agreed,
            )  # fmt: skip

    def joined(self) -> None:
        """Mark the data directories as those of a member of the cluster."""
        for directory in self._directories:
            if directory not in self._members:
                write_atomically(directory / MEMBER, f"{self._node.metadata.cluster_id}\n".encode(), sync=True)
        if self._own is not None:
            os.replace(self._journal, self._journal.with_name(self._journal.name + SET_ASIDE))


class Life(NamedTuple):
    """A run of a broker: its epoch, and the start of the operating system in which it was."""

    epoch: int
    boot_id: str


def boot_id() -> str:
    """Return an id of this start of the operating system; empty if it has none."""
    try:
        return BOOT_ID.read_text("ascii").strip()
    except OSError:
        return ""


def read_life(directory: Path) -> Life | None:
    try:
        found = json.loads((directory / LIFE).read_bytes())
        return Life(int(found["epoch"]), str(found["boot_id"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def remember_life(directories: Sequence[Path], epoch: int) -> None:
    """Write down that this broker runs with an epoch. A crash of the machine may lose it, which does no harm."""
    text = json.dumps({"epoch": epoch, "boot_id": boot_id()}).encode()
    for directory in directories:
        try:
            write_atomically(directory / LIFE, text, sync=False)
        except OSError as error:
            logger.warning("%s cannot be written: %s", directory / LIFE, error.strerror)


def new_cluster_id() -> str:
    """Return an id for a new cluster."""
    return secrets.token_urlsafe(16)


def member_of(directory: Path) -> str | None:
    """Return the id of the cluster that a data directory belongs to, None if it belongs to none."""
    try:
        return (directory / MEMBER).read_text("utf-8").strip() or None
    except FileNotFoundError:
        return None


def require_first_directory(logs: LogManager) -> None:
    """Raise DataDirUnusable if the first data directory has failed."""
    problem = logs.failed_dirs.get(logs.data_dirs[0])
    if problem is not None:
        raise DataDirUnusable(
            f"{problem}; it is the first data directory, which a broker needs until it has joined a cluster: its "
            "topics and configs are there"
        )


def refuse_member_of_cluster(directory: Path) -> None:
    """Raise WrongCluster if a broker without ZooKeeper is started with the data of a member of a cluster."""
    cluster_id = member_of(directory)
    if cluster_id is not None:
        raise WrongCluster(
            f"the data directory {directory} belongs to a broker of the cluster {cluster_id}; start it with its "
            "zookeeper.connect (--zookeeper host:port), or use another data directory"
        )
