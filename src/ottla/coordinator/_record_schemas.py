"""The layout of the records in ``__consumer_offsets``, in the form of ``ottla.protocol._schemas``.

A field is (name, first version, last version, type, array, nullable, tag, default, children). A field with the default
``...`` is required. Each key has one layout and is never flexible. The number in front of a key is its type. Change a
layout as Kafka does: add a tagged field, never a version, so that older brokers can still read it.
"""

from __future__ import annotations

from typing import Any

Fields = tuple[Any, ...]
#: For values that have no tagged fields in any version.
NEVER = 32_767


def _field(name: str, type_: str, *, first: int = 0, last: int = 4, nullable: bool = False, array: bool = False,
           tag: int | None = None, default: Any = ..., children: Fields | None = None) -> Fields:  # fmt: skip
    return (name, first, last, type_, array, nullable, tag, default, children)


GROUP_KEY: Fields = (_field("group_id", "string"),)
MEMBER_KEY: Fields = (_field("group_id", "string"), _field("member_id", "string"))
OFFSET_KEY: Fields = (_field("group_id", "string"), _field("topic", "string"), _field("partition", "int32"))
REGEX_KEY: Fields = (_field("group_id", "string"), _field("regular_expression", "string"))
HISTORY_KEY: Fields = (_field("group_id", "string"), _field("slot", "int32"))

LEGACY_OFFSET_VALUE: Fields = (
    _field("offset", "int64"),
    _field("metadata", "string"),
    _field("commit_timestamp", "int64"),
)
OFFSET_VALUE: Fields = (
    _field("offset", "int64"),
    _field("leader_epoch", "int32", first=3, default=-1),
    _field("metadata", "string"),
    _field("commit_timestamp", "int64"),
    _field("expire_timestamp", "int64", first=1, last=1, default=-1),
    _field("topic_id", "uuid", first=4, tag=0, default=None),
)
GROUP_VALUE: Fields = (
    _field("protocol_type", "string"),
    _field("generation", "int32"),
    _field("protocol", "string", nullable=True),
    _field("leader", "string", nullable=True),
    _field("current_state_timestamp", "int64", first=2, default=-1),
    _field(
        "members",
        "struct",
        array=True,
        children=(
            _field("member_id", "string"),
            _field("group_instance_id", "string", first=3, nullable=True, default=None),
            _field("client_id", "string"),
            _field("client_host", "string"),
            _field("rebalance_timeout", "int32", first=1, default=-1),
            _field("session_timeout", "int32"),
            _field("subscription", "bytes"),
            _field("assignment", "bytes"),
        ),
    ),
)
CONSUMER_GROUP_VALUE: Fields = (_field("epoch", "int32"), _field("metadata_hash", "int64", tag=0, default=0))
PARTITION_METADATA_VALUE: Fields = (
    _field(
        "topics",
        "struct",
        array=True,
        children=(
            _field("topic_id", "uuid"),
            _field("topic_name", "string"),
            _field("num_partitions", "int32"),
            _field(
                "partition_metadata",
                "struct",
                array=True,
                default=(),
                children=(_field("partition", "int32"), _field("racks", "string", array=True)),
            ),
        ),
    ),
)
CONSUMER_MEMBER_VALUE: Fields = (
    _field("instance_id", "string", nullable=True, default=None),
    _field("rack_id", "string", nullable=True, default=None),
    _field("client_id", "string"),
    _field("client_host", "string"),
    _field("subscribed_topic_names", "string", array=True),
    _field("subscribed_topic_regex", "string", nullable=True, default=None),
    _field("rebalance_timeout", "int32", default=-1),
    _field("server_assignor", "string", nullable=True, default=None),
    _field(
        "classic_member_metadata",
        "struct",
        nullable=True,
        tag=0,
        default=None,
        children=(
            _field("session_timeout", "int32"),
            _field(
                "supported_protocols",
                "struct",
                array=True,
                children=(_field("name", "string"), _field("metadata", "bytes")),
            ),
        ),
    ),
)
TARGET_METADATA_VALUE: Fields = (_field("assignment_epoch", "int32"),)
_TOPIC_PARTITIONS: Fields = (_field("topic_id", "uuid"), _field("partitions", "int32", array=True))
TARGET_MEMBER_VALUE: Fields = (_field("topic_partitions", "struct", array=True, children=_TOPIC_PARTITIONS),)
CURRENT_ASSIGNMENT_VALUE: Fields = (
    _field("member_epoch", "int32"),
    _field("previous_member_epoch", "int32"),
    _field("state", "int8"),
    _field("assigned_partitions", "struct", array=True, children=_TOPIC_PARTITIONS),
    _field("partitions_pending_revocation", "struct", array=True, children=_TOPIC_PARTITIONS),
)
REGEX_VALUE: Fields = (
    _field("topics", "string", array=True),
    _field("version", "int64"),
    _field("timestamp", "int64"),
)
_WHO: Fields = (
    _field("member_id", "string"),
    _field("group_instance_id", "string", nullable=True, default=None),
    _field("client_id", "string"),
    _field("client_host", "string"),
)
HISTORY_VALUE: Fields = (
    _field("number", "int64"),
    _field("generation", "int32"),
    _field("outcome", "string"),
    _field("protocol", "string"),
    _field("started_at", "int64"),
    _field("joined_at", "int64"),
    _field("ended_at", "int64"),
    _field("members", "int32"),
    _field("leader", "string"),
    _field(
        "triggers",
        "struct",
        array=True,
        children=(
            _field("kind", "string"),
            _field("at", "int64"),
            _field("who", "struct", nullable=True, children=_WHO),
            _field("reason", "string"),
        ),
    ),
    _field("triggers_left_out", "int32"),
    _field(
        "late",
        "struct",
        array=True,
        children=(
            _field("who", "struct", children=_WHO),
            _field("waited", "int64"),
            _field("removed", "bool"),
            _field("did", "string", tag=0, default=""),
        ),
    ),
    _field("partitions_kept", "int32"),
    _field("partitions_moved", "int32"),
    _field(
        "moves",
        "struct",
        array=True,
        children=(
            _field("topic", "string"),
            _field("partition", "int32"),
            _field("source", "string", nullable=True),
            _field("target", "string", nullable=True),
        ),
    ),
    _field("revoked_at", "int64", tag=0, default=-1),
    _field("waiting_for", "struct", array=True, tag=1, default=(), children=_WHO),
)
