"""The data directory of a broker that joins a cluster.

A broker that was alone and has data brings its topics into a new cluster. After that, its journal is set aside, because
the metadata is in ZooKeeper, and `cluster.id` says to which cluster the directory belongs.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.errors import OttlaError
from ottla.metadata import Metadata, MetadataRecord
from ottla.metadata.records import BrokerRegistered, ClusterCreated, from_json, to_json
from ottla.runtime.journal import FileJournal
from ottla.storage.files import write_atomically

if TYPE_CHECKING:
    from ottla.broker.node import Node

MEMBER = "cluster.id"
SET_ASIDE = ".before-cluster"


class WrongCluster(OttlaError):
    """The data directory belongs to another cluster."""


class Joining:
    """Checks and marks the data directory of a broker that joins."""

    def __init__(self, node: Node, journal: str) -> None:
        self._node = node
        self._directory = node.logs.data_dirs[0]
        self._journal = self._directory / journal
        self._own: Metadata | None = None
        if self._journal.exists():
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
        """Return the first records of a new cluster: what this broker had when it was alone, if anything."""
        if self._own is None or not self._own.cluster_id:
            return [ClusterCreated(member_of(self._directory) or new_cluster_id())]
        return [record for record in self._own.snapshot() if not isinstance(record, BrokerRegistered)]

    def check(self) -> None:
        """Raise WrongCluster if the data directory belongs to another cluster than ZooKeeper."""
        cluster_id = self._node.metadata.cluster_id
        mine = member_of(self._directory) or (self._own.cluster_id if self._own is not None else None)
        if mine and mine != cluster_id:
            raise WrongCluster(
                f"the data directory {self._directory} belongs to the cluster {mine}, but zookeeper.connect="
                f"{self._node.config.zookeeper_connect} is the cluster {cluster_id}; use the ZooKeeper of its cluster, "
                "or an empty data directory to join this one"
            )

    def joined(self) -> None:
        """Mark the data directory as a member of the cluster."""
        write_atomically(self._directory / MEMBER, f"{self._node.metadata.cluster_id}\n".encode(), sync=True)
        if self._journal.exists():
            os.replace(self._journal, self._journal.with_name(self._journal.name + SET_ASIDE))


def new_cluster_id() -> str:
    """Return an id for a new cluster."""
    return secrets.token_urlsafe(16)


def member_of(directory: Path) -> str | None:
    """Return the id of the cluster that a data directory belongs to, None if it belongs to none."""
    try:
        return (directory / MEMBER).read_text("utf-8").strip() or None
    except FileNotFoundError:
        return None


def refuse_member_of_cluster(directory: Path) -> None:
    """Raise WrongCluster if a broker without ZooKeeper is started with the data of a member of a cluster."""
    cluster_id = member_of(directory)
    if cluster_id is not None:
        raise WrongCluster(
            f"the data directory {directory} belongs to a broker of the cluster {cluster_id}; start it with its "
            "zookeeper.connect (--zookeeper host:port), or use another data directory"
        )
