"""The request handlers, one file per API.

A file defines ``API`` and ``handle(node, call, request)``. ``request`` is the decoded message. ``handle`` returns the
response message, None for no response, an awaitable of either, or a `Later` (``net.server.connection``), which needs no
task. Handlers are short and keep no state.

A frequent API may also define ``quick(node, version, correlation_id, frame, body)``. It turns the frame of the request
into the frame of the response, or returns None to leave the request to ``handle``. ``FIRST`` and ``LAST`` narrow the
served versions; by default every version in the schemas is served.
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
    """How an API is served."""

    name: str
    first: int
    last: int
    handle: Callable[..., Any]
    advertised_first: int
    """The first version that ApiVersions reports. It differs from ``first`` for Produce only."""
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
