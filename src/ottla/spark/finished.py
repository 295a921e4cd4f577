"""Commit the finished offsets of a query to a group. See docs/spark.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.clients.admin.blocking import Admin
from ottla.spark.offsets import parse_offsets
from ottla.spark.options import Offsets

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


def commit_finished(query: StreamingQuery, *, group_id: str, **config: object) -> Offsets:
    """Commit the end offsets of the query's last progress, and return them.

    `config` is for an admin client (``bootstrap_servers=…``). Other kinds of sources are ignored.
    """
    offsets = finished_offsets(query.lastProgress)
    if offsets:
        with Admin(config) as admin:
            admin.alter_group_offsets(group_id, offsets)
    return offsets


def finished_offsets(progress: Any) -> Offsets:
    """The end offsets of all topics in a progress."""
    found: Offsets = {}
    for source in [] if progress is None else progress.sources:
        if "python" in source.description.lower():
            found |= parse_offsets(source.endOffset) or {}
    return found
