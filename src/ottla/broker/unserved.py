"""Requests for APIs and versions that this broker does not serve.

As far as the protocol allows, the answer is UNSUPPORTED_VERSION. Otherwise the connection is closed, as in Kafka: a
response that the client cannot read would be worse.
"""

from __future__ import annotations

import logging

from ottla.broker.node import Call
from ottla.errors import UnsupportedVersion
from ottla.net.server.connection import CloseConnection
from ottla.protocol import codec
from ottla.protocol._schemas import APIS
from ottla.protocol.codec import Buffer

logger = logging.getLogger("ottla.net")
#: APIs of Kafka that we have no schemas for.
_OTHERS = {
    4: "leader_and_isr", 5: "stop_replica", 6: "update_metadata", 7: "controlled_shutdown", 52: "vote",
    53: "begin_quorum_epoch", 54: "end_quorum_epoch", 59: "fetch_snapshot", 62: "broker_registration",
    70: "controller_registration", 76: "share_group_heartbeat", 77: "share_group_describe", 78: "share_fetch",
    79: "share_acknowledge", 80: "add_raft_voter", 81: "remove_raft_voter", 82: "update_raft_voter",
    83: "initialize_share_group_state", 84: "read_share_group_state", 85: "write_share_group_state",
    86: "delete_share_group_state", 87: "read_share_group_state_summary", 88: "streams_group_heartbeat",
    89: "streams_group_describe", 90: "describe_share_group_offsets", 91: "alter_share_group_offsets",
    92: "delete_share_group_offsets", 93: "get_replica_log_info",
}  # fmt: skip


def title(api_key: int) -> str:
    """Return Kafka's name of an API, with its number if there is none.

    >>> title(76), title(4711)
    ('ShareGroupHeartbeat', 'with the key 4711, which Kafka does not have,')
    """
    known = APIS.get(api_key)
    name = known[0] if known is not None else _OTHERS.get(api_key)
    if name is None:
        return f"with the key {api_key}, which Kafka does not have,"
    return "".join(word.capitalize() for word in name.split("_"))


def refuse(call: Call, why: str) -> Buffer:
    """Answer a request with UNSUPPORTED_VERSION, or raise CloseConnection."""
    known = APIS.get(call.api_key)
    if known is None or not known[1] <= call.api_version <= known[2]:
        raise CloseConnection(why)
    logger.info("a request from %s is answered with UNSUPPORTED_VERSION: %s", call.connection.client_host, why)
    message = codec.error_response(call.api_key, call.api_version, UnsupportedVersion.code, why)
    if "error_code" not in message:
        raise CloseConnection(why)
    return codec.encode_response(call.api_key, call.api_version, call.correlation_id, message)
