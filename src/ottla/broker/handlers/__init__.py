"""The APIs that are served, one file each.

A file has ``API``, and ``handle(node, call, request)`` which returns the response as a message, None where there is
none, an awaitable of either, or a `Later` (``net.connection``), which costs no task. Handlers are short and hold no
state. An API that is asked very often may have a ``quick(node, version, correlation_id, frame, body)`` too, which makes
the frame of the answer of that of the request, or returns None to have it handled. ``FIRST`` and ``LAST`` narrow the
versions that are served; without them it is every version that the schemas have.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from ottla.broker.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)
from ottla.protocol.apis import api
from ottla.protocol.codec import Buffer


class Handler(NamedTuple):
    """An API as it is served."""

    name: str
    first: int
    last: int
    handle: Callable[..., Any]
    advertised_first: int
    """What ApiVersions tells as the first version: ``first``, but for one API with a history."""
    quick: Callable[..., Buffer | None] | None


def _handler(module: ModuleType) -> Handler:
    known = api(module.API)
    first, last = getattr(module, "FIRST", known.first), getattr(module, "LAST", known.last)
    advertised = getattr(module, "ADVERTISED_FIRST", first)
    return Handler(known.name, first, last, module.handle, advertised, getattr(module, "quick", None))


HANDLERS: dict[int, Handler] = {
    int(module.API): _handler(module)
    for module in (
        add_offsets_to_txn, add_partitions_to_txn, alter_configs, api_versions, consumer_group_describe,
        consumer_group_heartbeat, create_partitions, create_topics, delete_groups, delete_records,
        delete_topics, describe_cluster, describe_configs, describe_groups, describe_log_dirs,
        describe_producers, describe_topic_partitions, describe_transactions, end_txn, fetch, find_coordinator,
        heartbeat, incremental_alter_configs, init_producer_id, join_group, leave_group, list_config_resources,
        list_groups, list_offsets, list_partition_reassignments, list_transactions, metadata, offset_commit,
        offset_delete, offset_fetch, offset_for_leader_epoch, produce, sync_group, txn_offset_commit, write_txn_markers,
    )
}  # fmt: skip
