"""ApiVersions: the served APIs, versions and features.

v0 is also the response to a version that is too new. v3 adds the client's software and features; v4 allows features
that start at 0. Clients check one feature: transaction.version 2 enables the second transaction protocol. The epoch of
the features is, as in Kafka, how far the broker has read the metadata.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from ottla.broker.node import Call, Node
from ottla.errors import InvalidRequest, UnsupportedVersion
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.API_VERSIONS
FROM_ZERO = 4


class Levels(NamedTuple):
    """The first and last supported level of a feature. The last one is in use."""

    first: int
    last: int


#: Kafka's features. The metadata.version is that of Kafka 4.0, whose APIs and rules ottla follows.
FEATURES = {
    "eligible.leader.replicas.version": Levels(0, 1),
    "group.version": Levels(0, 1),
    "metadata.version": Levels(7, 25),
    "transaction.version": Levels(0, 2),
}
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(node: Node, call: Call, request: Struct | None) -> Message:
    if request is None:
        return {"error_code": UnsupportedVersion.code, "api_keys": _served(node.cluster is not None)}
    if call.api_version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return {"error_code": InvalidRequest.code, "api_keys": []}
        call.connection.client_software = (name, version)
    return {
        "api_keys": _served(node.cluster is not None),
        "supported_features": _supported(call.api_version),
        "finalized_features_epoch": node.controller.position,
        "finalized_features": [
            {"name": name, "max_version_level": levels.last, "min_version_level": levels.last}
            for name, levels in FEATURES.items()
        ],
    }


def _supported(version: int) -> list[Message]:
    return [
        {"name": name, "min_version": first, "max_version": last}
        for name, (first, last) in FEATURES.items()
        if first or version >= FROM_ZERO  # Older clients cannot read a feature that starts at 0.
    ]


@cache
def _served(in_cluster: bool) -> list[Message]:
    # Imported here because the table includes this module.
    from ottla.broker.handlers import HANDLERS

    return [
        {"api_key": key, "min_version": handler.advertised_first, "max_version": handler.last}
        for key, handler in sorted(HANDLERS.items())
        if in_cluster or not handler.only_in_cluster
    ]
