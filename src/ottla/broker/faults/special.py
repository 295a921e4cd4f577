"""Error responses that depend on more than the request and its schema.

Fetch          the partitions of a session are not in the request
Metadata       a client needs the brokers to ask again, and may want all topics
OffsetFetch    a client may want all offsets of a group, without naming the partitions
ApiVersions    a version that the broker does not know gets a response of version 0
"""

from __future__ import annotations

from ottla import errors
from ottla.broker.faults.asked import REBOOTSTRAP, fetches_by_id, wants_all_topics
from ottla.broker.fetch_sessions import grouped
from ottla.broker.node import Node
from ottla.errors import KafkaError
from ottla.net.server.connection import Connection
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct


def failed_session(error: type[KafkaError]) -> Message:
    """The response to a fetch whose session is not what the client thinks. The session stays as it is."""
    return {"error_code": error.code, "session_id": 0, "responses": []}


def failed_fetch(node: Node, version: int, request: Struct, error: type[KafkaError], session_id: int) -> Message:
    """Fail all partitions of a fetch, and of its session, which has advanced already."""
    session = node.sessions.get(session_id)
    by_id, known = fetches_by_id(version), None if session is None else list(session.wanted)
    failed = []
    for key in node.sessions.partitions(request, by_id=by_id) if known is None else known:
        response: Message = {
            "partition_index": key.partition,
            "error_code": error.code,
            "high_watermark": -1,
            "log_start_offset": -1,
            "aborted_transactions": None,
            "records": b"",
        }
        if session is not None:
            session.wanted[key].is_news(response, 0)  # So that the next response includes it again.
        failed.append((key, response))
    return {"session_id": session_id, "responses": grouped(failed)}


def with_brokers(
    node: Node, connection: Connection, version: int, request: Struct, error: type[KafkaError], message: Message
) -> Message:
    """Complete a Metadata response: a client needs the brokers to ask again."""
    is_whole = error is REBOOTSTRAP
    if is_whole:
        topics = []
    elif wants_all_topics(request, version):
        topics = [
            {
                "error_code": error.code,
                "name": topic.name,
                "topic_id": topic.topic_id,
                "is_internal": topic.is_internal,
                "partitions": [],
            }
            for topic in node.metadata.topics.values()
        ]
    else:
        topics = [{**topic, "partitions": []} for topic in message["topics"]]
    return {
        **message,
        "error_code": error.code if is_whole else 0,
        "brokers": [
            {"node_id": each.broker_id, "host": each.host, "port": each.port, "rack": each.rack}
            for each in node.brokers(connection)
        ],
        "topics": topics,
        "cluster_id": node.metadata.cluster_id,
        "controller_id": node.controller_id,
    }


def wants_all_offsets(request: Struct) -> bool:
    """Whether an OffsetFetch request asks for a group without naming its partitions."""
    return any(not group.topics for group in _groups(request))


def failed_offsets(request: Struct, message: Message, error: type[KafkaError]) -> Message:
    """Put the error of a partition into a response that has the offsets of the groups.

    Of a group whose offsets are all wanted, Kafka can call the offsets unstable. It leaves out topics that do not exist
    or that the client may not see.
    """
    answered = message["groups"] or [message]
    for asked, group in zip(_groups(request), answered, strict=True):
        if not asked.topics and error is not errors.UnstableOffsetCommit:
            group["topics"] = []
        for topic in group["topics"]:
            topic["partitions"] = [
                {
                    "partition_index": each["partition_index"],
                    "committed_offset": -1,
                    "metadata": "",
                    "error_code": error.code,
                }
                for each in topic["partitions"]
            ]
    return message


def _groups(request: Struct) -> list[Struct]:
    return request.groups or [request]


def unsupported_version() -> Message:
    """What a broker answers that knows only version 0 of ApiVersions, in this version (KIP-511)."""
    known = {"api_key": ApiKey.API_VERSIONS, "min_version": 0, "max_version": 0}
    return {"error_code": errors.UnsupportedVersion.code, "api_keys": [known]}
