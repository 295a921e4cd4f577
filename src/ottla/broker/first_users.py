"""Users for the first start of a broker: written to its data directory while it does not run.

Without them nobody could log in to add the first one. If the broker then starts a new cluster, it brings them along,
as it does with everything that it had when it was alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ottla.broker.cluster.joining import member_of, new_cluster_id
from ottla.broker.server import JOURNAL
from ottla.errors import OttlaError
from ottla.metadata import Metadata, MetadataRecord
from ottla.metadata.records import ClusterCreated, from_json, to_json
from ottla.metadata.users import Upsertion, alter_users
from ottla.runtime.journal import FileJournal
from ottla.storage.data_dir import DataDir


def add_users(directory: Path, upsertions: Sequence[Upsertion]) -> None:
    """Set the credentials of users in the data directory of a broker that is stopped."""
    held = DataDir(directory)
    held.hold()
    try:
        if (cluster_id := member_of(directory)) is not None:
            raise OttlaError(
                f"the data directory {directory} belongs to a broker of the cluster {cluster_id}, whose users are in "
                "ZooKeeper: start a broker and use --bootstrap-server instead of --data-dir"
            )
        _write(directory / JOURNAL, upsertions)
    finally:
        held.unlock()


def _write(path: Path, upsertions: Sequence[Upsertion]) -> None:
    journal: FileJournal[MetadataRecord] = FileJournal(path, to_json, from_json)
    metadata = Metadata()
    try:
        for record in journal.open():
            metadata.replay(record)
        if not metadata.cluster_id:
            metadata.replay(ClusterCreated(new_cluster_id()))
        for upsertion in upsertions:
            outcome = alter_users(metadata, (), (upsertion,), now=0)
            assert isinstance(outcome.response, dict)
            for problem in filter(None, outcome.response.values()):
                raise problem
            for record in outcome.records:
                metadata.replay(record)
        journal.rewrite(metadata.snapshot())
    finally:
        journal.close()
