"""The configuration of an admin client: Kafka's names and defaults. What all clients share is in client.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ottla.config.client import ClientConfig
from ottla.config.fields import INT_MAX, at_least, int32, int64


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig(ClientConfig):
    """The configuration of an admin client.

    >>> AdminConfig.given(None, {"bootstrap_servers": "localhost:9092"}).default_api_timeout_ms
    60000
    """

    what: ClassVar[str] = "admin configuration"

    default_api_timeout_ms: int = int32(
        60_000, "How long a call that names no timeout may take, with all its retries.", at_least(0)
    )
    retries: int = int32(
        INT_MAX, "How often a request is sent again after a passing error; the timeout of the call ends it too.",
        at_least(0),
    )  # fmt: skip
    connections_max_idle_ms: int = int64(300_000, "A connection that is idle for this long is closed.", at_least(0))
