"""The configuration table of the admin client. Names and defaults are Kafka's. client.py has the shared rows."""

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
        60_000, "The time limit of a call without its own timeout, including retries.", at_least(0)
    )
    retries: int = int32(
        INT_MAX,
        "How often a request is retried after a transient error. The timeout of the call also ends the retries.",
        at_least(0),
    )
    connections_max_idle_ms: int = int64(300_000, "Close a connection that is idle for this long.", at_least(0))
