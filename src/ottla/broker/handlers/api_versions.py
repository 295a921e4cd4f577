"""ApiVersions: which APIs and versions are served, and which features.

v0 is also the answer to a version that is too new; v3 brings the client's software and features; v4 lets features begin
at 0. Of the features clients look at one: transaction.version 2 lets them use the second version of transactions.
"""

from __future__ import annotations

import re

from ottla.broker.node import Call, Node
from ottla.errors import InvalidRequest, UnsupportedVersion
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.API_VERSIONS
FROM_ZERO = 4
#: The versions of each feature that can be had, from 0; the last of each is in use.
FEATURES = {"group.version": 1, "transaction.version": 2}
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(node: Node, call: Call, request: Struct | None) -> Message:
    if request is None:
        return {"error_code": UnsupportedVersion.code, "api_keys": _served()}
    if call.api_version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return {"error_code": InvalidRequest.code, "api_keys": []}
        call.connection.client_software = (name, version)
    return {
        "api_keys": _served(),
        "supported_features": _supported(call.api_version),
        "finalized_features_epoch": 0,
        "finalized_features": [
            {"name": name, "max_version_level": last, "min_version_level": last} for name, last in FEATURES.items()
        ],
    }


def _supported(version: int) -> list[Message]:
    if version < FROM_ZERO:
        return []  # Older clients cannot read a feature that begins at 0.
    return [{"name": name, "min_version": 0, "max_version": last} for name, last in FEATURES.items()]


def _served() -> list[Message]:
    # The table lists this module too, so it cannot be imported before all of them are there.
    from ottla.broker.handlers import HANDLERS

    return [
        {"api_key": key, "min_version": handler.advertised_first, "max_version": handler.last}
        for key, handler in sorted(HANDLERS.items())
    ]
